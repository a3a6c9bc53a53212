// Prefixes on a server: a runtime with a file of its own begins with what another one published.
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "api/sequence_state.hpp"
#include "redis/redis_server.hpp"
#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using redis::RedisServer;
using redis::wait_until;
using testing::Drive;
using testing::Scenario;
using testing::Traffic;
using testing::prefixes::chunk_tokens;
using testing::prefixes::kept;
using testing::prefixes::long_enough;
using testing::prefixes::prompt;
using testing::prefixes::publish_and_step;
using testing::prefixes::step_count;
using testing::prefixes::tokens_of;

std::string url_of(const RedisServer& server, const std::string& login = {}) {
  return "redis://" + login + server.address().text();
}

/// Returns a scenario whose runtimes have a file and servers, as on a machine of their own.
Scenario with_servers(Scenario scenario, const std::string& file, const std::string& url) {
  scenario.runtime.below_host = {.file = file, .file_bytes = 16 << 20};
  scenario.runtime.prefixes = {.model = "weights",
                               .chunk_tokens = chunk_tokens,
                               .remote = {.url = url, .deadline = long_enough}};
  return scenario;
}

class RemotePrefix : public testing::OfEachPolicy {
 protected:
  void SetUp() override {
    if (!redis::is_installed()) GTEST_SKIP() << "no redis-tools on this machine";
  }
  TemporaryFolder folder_;
};

TEST_P(RemotePrefix, OfAnotherMachineChangesNoBit) {
  const RedisServer server({.password = "open sesame"});
  const std::string url = url_of(server, ":open%20sesame@");
  const std::vector<TokenId> tokens = tokens_of(prompt);
  const auto expected = publish_and_step(with_servers(scenario_, folder_ / "first", url),
                                         {.tokens = tokens, .salt = "mine"});
  const auto runtime = with_servers(scenario_, folder_ / "second", url).open();
  EXPECT_EQ(runtime->open_sequence({.tokens = tokens, .salt = "yours"}).value()->length(), 0U);
  auto opened = runtime->open_sequence({.tokens = tokens, .salt = "mine"});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(std::move(*opened), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), kept);
  ASSERT_TRUE(drive.steps(step_count).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_EQ(drive.sequence().counters().builds, 0U) << "the index came, too";
  drive.expect_all_rows_right();
  const PrefixCounters counters = runtime->prefix_counters();
  EXPECT_EQ(counters.look_ups, 2U);
  EXPECT_EQ(counters.hits, 1U);
  EXPECT_EQ(counters.hits_remote, 1U);
}

INSTANTIATE_TEST_SUITE_P(Table, RemotePrefix, ::testing::ValuesIn(testing::selecting_policies()));

class RemotePrefixes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!redis::is_installed()) GTEST_SKIP() << "no redis-tools on this machine";
  }
  Scenario scenario_;
  TemporaryFolder folder_;
  std::vector<TokenId> tokens_ = tokens_of(prompt);
};

TEST_F(RemotePrefixes, ThatAreDamagedAreNotFound) {
  const RedisServer server;
  publish_and_step(with_servers(scenario_, folder_ / "first", url_of(server)), {.tokens = tokens_});
  auto client = server.client();
  const int values = std::stoi(client.ask({"DBSIZE"}));
  ASSERT_GT(values, 18);
  // One bit of each value, in its middle.
  client.ask({"EVAL",
              "for _, key in ipairs(redis.call('KEYS', 'terrace:*')) do "
              "local bit = redis.call('STRLEN', key) * 4 "
              "redis.call('SETBIT', key, bit, 1 - redis.call('GETBIT', key, bit)) end",
              "0"});
  const auto runtime = with_servers(scenario_, folder_ / "second", url_of(server)).open();
  EXPECT_EQ(runtime->open_sequence({.tokens = tokens_}).value()->length(), 0U);
  EXPECT_EQ(runtime->prefix_counters().misses.corrupt, 1U);
  wait_until([&] { return std::stoi(client.ask({"DBSIZE"})) < values; }, "a value is erased");
}

TEST_F(RemotePrefixes, OfAServerThatIsNotThereAreMissed) {
  std::string url;
  {
    const RedisServer server;
    url = url_of(server);
  }
  publish_and_step(with_servers(scenario_, folder_ / "first", url), {.tokens = tokens_});
  const auto other = with_servers(scenario_, folder_ / "second", url).open();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(other->open_sequence({.tokens = tokens_}).value()->length(), 0U);
  }
  EXPECT_EQ(other->prefix_counters().misses.late, 20U);
  const auto same = with_servers(scenario_, folder_ / "first", url).open();
  EXPECT_EQ(same->open_sequence({.tokens = tokens_}).value()->length(), kept);
  EXPECT_EQ(same->prefix_counters().hits_remote, 0U);
}

TEST_F(RemotePrefixes, NeedAFileAndAUrlThatIsOne) {
  Scenario scenario = with_servers(scenario_, folder_ / "file", "redis://:secret@");
  const auto refused = [&] {
    const auto runtime =
        Runtime::open(scenario.runtime, testing::make_scenario_backend({}, nullptr));
    return runtime ? Error{} : runtime.error();
  };
  EXPECT_EQ(refused().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(refused().message()),
              ::testing::AllOf(::testing::HasSubstr("tier.remote"),
                               ::testing::Not(::testing::HasSubstr("secret"))));
  scenario.runtime.prefixes.remote.url = "redis://127.0.0.1:1";
  scenario.runtime.below_host = {};
  EXPECT_THAT(std::string(refused().message()), ::testing::HasSubstr("tier.nvme.path"));
}

}  // namespace
}  // namespace terrace
