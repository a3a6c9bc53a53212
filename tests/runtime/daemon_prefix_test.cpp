// Prefixes with the daemon: a runtime begins with what another one published, each with a client of
// its own, as in two processes.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/made_node.hpp"
#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"
#include "terrace/runtime/config.hpp"

namespace terrace {
namespace {

using node::NodePlace;
using node::RunningDaemon;
using testing::Drive;
using testing::Scenario;
using testing::Traffic;
using testing::prefixes::chunk_tokens;
using testing::prefixes::expect_same_prompt_after;
using testing::prefixes::expect_same_steps_after_closing;
using testing::prefixes::kept;
using testing::prefixes::long_enough;
using testing::prefixes::prompt;
using testing::prefixes::publish_and_step;
using testing::prefixes::step_count;
using testing::prefixes::tokens_of;

/// Returns a scenario whose runtimes have a daemon, and nothing else below the host.
Scenario with_daemon(Scenario scenario, const NodePlace& place, std::size_t host_bytes = SIZE_MAX) {
  scenario.runtime.below_host = {.host_bytes = host_bytes};
  scenario.runtime.prefixes = {.model = "weights",
                               .chunk_tokens = chunk_tokens,
                               .daemon = {.socket = place.socket(), .deadline = long_enough}};
  return scenario;
}

class DaemonPrefix : public testing::OfEachPolicy {
 protected:
  NodePlace place_;
  std::vector<TokenId> tokens_ = tokens_of(prompt);
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_P(DaemonPrefix, OfAnotherProcessChangesNoBit) {
  RunningDaemon daemon(place_.options());
  std::vector<testing::StepOutput> expected;
  for (const auto& [host_bytes, has_file] :
       {std::pair{SIZE_MAX, false}, {std::size_t{0}, false}, {std::size_t{0}, true}}) {
    Scenario scenario = with_daemon(scenario_, place_, host_bytes);
    if (has_file) {
      scenario.runtime.below_host.file = place_.folder() / "rows";
      scenario.runtime.below_host.file_bytes = 16 << 20;
    }
    if (expected.empty())
      expected = publish_and_step(scenario, {.tokens = tokens_, .salt = "mine"});
    const auto runtime = scenario.open();
    EXPECT_EQ(runtime->has_store_below_host(), has_file);
    EXPECT_EQ(runtime->open_sequence({.tokens = tokens_, .salt = "yours"}).value()->length(), 0U);
    auto opened = runtime->open_sequence({.tokens = tokens_, .salt = "mine"});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    Drive drive(std::move(*opened), *runtime, traffic_);
    ASSERT_EQ(drive.sequence().length(), kept);
    ASSERT_TRUE(drive.steps(step_count).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    EXPECT_EQ(drive.sequence().counters().builds, 0U) << "the index came, too";
    drive.expect_all_rows_right();
    const PrefixCounters counters = runtime->prefix_counters();
    EXPECT_EQ(counters.look_ups, 2U);
    EXPECT_EQ(counters.hits + counters.partial, 1U);
    EXPECT_EQ(counters.tokens_found, kept);
  }
}

TEST_P(DaemonPrefix, ChangesNoBitOfThePromptAfterIt) {
  for (const PromptAttention prompts : {PromptAttention::exact, PromptAttention::retrieved}) {
    const NodePlace place;
    RunningDaemon daemon(place.options());
    Scenario scenario = with_daemon(scenario_, place, /*host_bytes=*/0);
    scenario.runtime.prompts = prompts;
    expect_same_prompt_after(scenario);
  }
}

TEST_P(DaemonPrefix, WithItsTailGoesOnAsIfItHadNeverBeenClosed) {
  RunningDaemon daemon(place_.options());
  expect_same_steps_after_closing(with_daemon(scenario_, place_, /*host_bytes=*/0), 21);
}

TEST_P(DaemonPrefix, WhoseDaemonIsGoneIsComputedAgain) {
  std::optional<RunningDaemon> daemon(std::in_place, place_.options());
  const Scenario scenario = with_daemon(scenario_, place_);
  publish_and_step(scenario, {.tokens = tokens_});
  const auto runtime = scenario.open();
  Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic_);
  ASSERT_EQ(drive.sequence().length(), kept);
  EXPECT_EQ(drive.sequence().readable_tokens(), kept);
  daemon.reset();
  const std::size_t readable = drive.sequence().readable_tokens();
  EXPECT_LT(readable, kept) << "most rows are with the daemon";
  std::vector<std::byte> row(scenario.runtime.shape.row_bytes());
  const auto position = static_cast<std::uint32_t>(readable);
  const Status refused = drive.sequence().read_rows(LayerId{1}, HeadId{0}, {&position, 1}, row);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::io_error) << refused.error().message();
  ASSERT_TRUE(drive.sequence().truncate(readable).has_value());
  EXPECT_EQ(drive.sequence().readable_tokens(), readable);
  ASSERT_TRUE(drive.prefill(kept).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  drive.expect_all_rows_right();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(runtime->open_sequence({.tokens = tokens_}).value()->length(), 0U);
  }
  EXPECT_EQ(runtime->prefix_counters().misses.late, 20U);
  EXPECT_FALSE(drive.sequence().publish({.tokens = tokens_of(kept)}).has_value());
}

TEST(DaemonMetrics, HaveTheSamplesOfTheAttentionMassOfSteps) {
  const NodePlace place;
  RunningDaemon daemon(place.options());
  Scenario scenario = with_daemon({}, place);
  scenario.runtime.mass_every = 2;
  const auto runtime = scenario.open();
  auto opened = runtime->open_sequence({.tokens = tokens_of(prompt), .salt = "mine"});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(std::move(*opened), *runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  const SequenceCounters counters = drive.sequence().counters();
  ASSERT_GT(counters.mass_samples, 0U);
  const auto client = place.client();
  node::wait_for_counter(*client, "mass.samples", counters.mass_samples);
  EXPECT_NEAR(static_cast<double>(node::counter(*client, "mass.millionths")) / 1e6,
              counters.attention_mass, 1e-6 * static_cast<double>(counters.mass_samples));
}

INSTANTIATE_TEST_SUITE_P(Table, DaemonPrefix, ::testing::ValuesIn(testing::selecting_policies()));

class DaemonPrefixes : public ::testing::Test {
 protected:
  /// Opens sequences until one begins with the prefix: the client connects again after a pause.
  [[nodiscard]] std::unique_ptr<Sequence> open_again(Runtime& runtime) const {
    for (;;) {
      auto sequence = runtime.open_sequence({.tokens = tokens_}).value();
      if (sequence->length() > 0) return sequence;
    }
  }

  NodePlace place_;
  Scenario scenario_ = with_daemon({}, place_);
  std::vector<TokenId> tokens_ = tokens_of(prompt);
};

TEST_F(DaemonPrefixes, AreFoundAgainAfterItsRestart) {
  std::optional<RunningDaemon> daemon(std::in_place, place_.options());
  const auto expected = publish_and_step(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const auto before = runtime->open_sequence({.tokens = tokens_}).value();
  EXPECT_EQ(before->length(), kept);
  daemon.reset();
  EXPECT_EQ(runtime->open_sequence({.tokens = tokens_}).value()->length(), 0U);
  daemon.emplace(place_.options());
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(open_again(*runtime), *runtime, traffic);
  EXPECT_EQ(drive.sequence().length(), kept);
  ASSERT_TRUE(drive.steps(step_count).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
  EXPECT_LT(before->readable_tokens(), kept) << "its lease ended with the first daemon";
}

TEST_F(DaemonPrefixes, ThatWereReadOutliveIt) {
  const Traffic traffic(scenario_.runtime.shape, 1);
  for (const bool has_file : {false, true}) {
    SCOPED_TRACE(has_file);
    Scenario scenario = scenario_;
    if (has_file) {
      scenario.runtime.below_host.file = place_.folder() / "rows";
      scenario.runtime.below_host.file_bytes = 16 << 20;
    }
    std::optional<RunningDaemon> daemon(place_.options());
    publish_and_step(scenario, {.tokens = tokens_});
    const auto runtime = scenario.open();
    Drive drive(open_again(*runtime), *runtime, traffic);
    ASSERT_EQ(drive.sequence().length(), kept);
    drive.expect_all_rows_right();
    daemon.reset();
    // The pages on the host are the only copies now: they stay, or go to the file.
    static_cast<void>(runtime->set_limit(Tier::host, 100 << 10));
    EXPECT_EQ(drive.sequence().readable_tokens(), kept);
    static_cast<void>(runtime->set_limit(Tier::host, SIZE_MAX));
    drive.expect_all_rows_right();
  }
}

TEST_F(DaemonPrefixes, FitThroughAMemoryThatHasNoRoomForThem) {
  node::DaemonOptions options = place_.options();
  // Some parts of rows at a time, of 2 layers and 4 KiB each.
  options.client.bytes = 40 << 10;
  RunningDaemon daemon(options);
  scenario_.runtime.policy = "streaming";
  const auto expected = publish_and_step(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), kept);
  const auto fork = drive.sequence().fork().value();
  ASSERT_TRUE(drive.steps(step_count).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
  const auto client = place_.client();
  node::wait_for_counter(*client, "memory.held_bytes", 0);
  EXPECT_EQ(node::counter(*client, "leases"), 1U) << "forks share it";
}

TEST_F(DaemonPrefixes, ThatNobodySelectsStayWithIt) {
  constexpr std::size_t length = 4096;
  RunningDaemon daemon(place_.options());
  const std::vector<TokenId> tokens = tokens_of(length);
  scenario_.runtime.prefixes.chunk_tokens = 256;
  const Traffic traffic(scenario_.runtime.shape, 1);
  {
    const auto runtime = scenario_.open();
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(length).has_value());
    ASSERT_TRUE(drive.sequence().publish({.tokens = tokens}).has_value());
  }
  const auto runtime = scenario_.open();
  Drive drive(runtime->open_sequence({.tokens = tokens}).value(), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), length);
  const KvShape& shape = scenario_.runtime.shape;
  const std::size_t all = length * shape.layers * shape.token_bytes();
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_LT(drive.sequence().counters().store.read, all / 2);
}

TEST_F(DaemonPrefixes, AreWrittenOnceForAllProcesses) {
  RunningDaemon daemon(place_.options());
  publish_and_step(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const auto again = drive.sequence().publish({.tokens = tokens_});
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->tokens, kept);
  EXPECT_EQ(again->chunks, 0U);
  EXPECT_EQ(again->bytes, 0U);
  EXPECT_TRUE(again->indexed);
  const auto other = drive.sequence().publish({.tokens = tokens_, .salt = "another"});
  ASSERT_TRUE(other.has_value()) << other.error().message();
  EXPECT_EQ(other->chunks, kept / 32) << "each tenant has its own";
}

TEST_F(DaemonPrefixes, AreOfAnIndexThatAnotherSeedCannotUse) {
  RunningDaemon daemon(place_.options());
  publish_and_step(scenario_, {.tokens = tokens_});
  ++scenario_.runtime.seed;
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), kept);
  ASSERT_TRUE(drive.steps(step_count).has_value());
  EXPECT_GT(drive.sequence().counters().builds, 0U);
  drive.expect_all_rows_right();
}

TEST_F(DaemonPrefixes, AreRefusedWithSettingsThatMakeNoSense) {
  const auto refused = [&](const Scenario& scenario) {
    const auto runtime =
        Runtime::open(scenario.runtime, testing::make_scenario_backend({}, nullptr));
    return runtime ? std::string() : std::string(runtime.error().message());
  };
  EXPECT_EQ(refused(scenario_), "") << "no daemon is there, and none has to be";
  Scenario scenario = scenario_;
  scenario.runtime.prefixes.remote.url = "redis://127.0.0.1:1";
  EXPECT_THAT(refused(scenario), ::testing::HasSubstr("tier.remote.url"));
  scenario = scenario_;
  scenario.runtime.prefixes.daemon.deadline = {};
  EXPECT_THAT(refused(scenario), ::testing::HasSubstr("daemon.deadline"));
  scenario = scenario_;
  scenario.runtime.prefixes.daemon.user = "nobody of that name";
  EXPECT_THAT(refused(scenario), ::testing::HasSubstr("daemon.user"));
  scenario = scenario_;
  scenario.runtime.prefixes.daemon.socket = std::string(200, 'x');
  EXPECT_THAT(refused(scenario), ::testing::HasSubstr("daemon.socket"));
}

TEST_F(DaemonPrefixes, AreSetByKeys) {
  Config config;
  ASSERT_TRUE(apply_config_text(config, "daemon: {socket: /run/it, user: terrace, deadline: 3s}\n",
                                "a.yaml"));
  const auto options = RuntimeOptions::from(config, scenario_.runtime.shape);
  ASSERT_TRUE(options.has_value()) << options.error().message();
  const DaemonPrefixOptions& daemon = options->prefixes.daemon;
  EXPECT_EQ(daemon.socket, "/run/it");
  EXPECT_EQ(daemon.user, "terrace");
  EXPECT_EQ(daemon.deadline, std::chrono::seconds{3});
}

TEST_F(DaemonPrefixes, AreOfRuntimesThatNameAModel) {
  scenario_.runtime.prefixes.model = "";
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const auto refused = drive.sequence().publish({.tokens = tokens_});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr("tier.model"));
}

TEST_F(DaemonPrefixes, AreNotFoundWithADaemonOfAnotherUser) {
  RunningDaemon daemon(place_.options());
  publish_and_step(scenario_, {.tokens = tokens_});
  scenario_.runtime.prefixes.daemon.user = "12345";
  EXPECT_EQ(scenario_.open()->open_sequence({.tokens = tokens_}).value()->length(), 0U);
}

}  // namespace
}  // namespace terrace
