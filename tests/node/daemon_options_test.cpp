#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {
namespace {

Config config_of(std::initializer_list<std::pair<const char*, std::string>> values) {
  Config config;
  for (const auto& [key, text] : values) {
    EXPECT_TRUE(config.set(key, text, {ConfigOrigin::flag, "--set"}));
  }
  return config;
}

TEST(DaemonOptions, ComeFromTheConfig) {
  const auto options = DaemonOptions::from(config_of({{"tier.nvme.path", "/tmp/chunks"},
                                                      {"daemon.socket", "/tmp/a/b.sock"},
                                                      {"daemon.memory", "64MiB"},
                                                      {"daemon.huge_pages", "off"},
                                                      {"daemon.allow_users", "root, 17"},
                                                      {"daemon.quota", "1GiB"},
                                                      {"daemon.lease", "5s"}}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->socket, "/tmp/a/b.sock");
  EXPECT_EQ(options->memory, std::uint64_t{64} << 20);
  EXPECT_EQ(options->huge_pages, HugePages::off);
  EXPECT_THAT(options->allow_users, ::testing::ElementsAre(0, 17));
  EXPECT_EQ(options->quotas.of("abc"), std::uint64_t{1} << 30);
  EXPECT_EQ(options->lease, std::chrono::seconds{5});
  EXPECT_EQ(options->client.leases, 1024U);
}

TEST(DaemonOptions, RefuseWhatNoDaemonCanHave) {
  EXPECT_EQ(DaemonOptions::from(Config{}).error().code, Errc::invalid_argument);  // no file
  const std::string long_path = "/tmp/" + std::string(200, 'x');
  for (const auto& [key, value] : {std::pair<const char*, std::string>{"daemon.socket", long_path},
                                   {"daemon.allow_users", "no such user"},
                                   {"daemon.quotas", "/there/is/no/file"}}) {
    EXPECT_FALSE(DaemonOptions::from(config_of({{"tier.nvme.path", "/tmp/chunks"}, {key, value}})))
        << key;
  }
}

TEST(TenantQuotas, ALongerNameCountsMore) {
  const auto read = TenantQuotas::read("# tenants\n\n01234567 1GiB\n0123456789 5\nnone 7\n", "q");
  ASSERT_TRUE(read) << read.error().message();
  const TenantQuotas quotas{.of_each = 9, .by_name = *read};
  EXPECT_EQ(quotas.of("0123456789abcdef"), 5U);
  EXPECT_EQ(quotas.of("01234567ffffffff"), std::uint64_t{1} << 30);
  EXPECT_EQ(quotas.of("ffff"), 9U);
  EXPECT_EQ(quotas.of(""), 7U);
}

TEST(TenantQuotas, AWrongLineIsNamed) {
  for (const char* const text :
       {"0123456 1GiB\n", "0123456g 1GiB\n", "01234567\n", "01234567 much\n", "01234567 1 2\n"}) {
    const auto read = TenantQuotas::read(std::string("# first\n") + text, "quotas");
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(std::string(read.error().message()), ::testing::StartsWith("quotas:2:"));
  }
}

TEST(DaemonClientOptions, RefuseWhatNoClientCanHave) {
  EXPECT_FALSE(DaemonClient::create({}));
  EXPECT_FALSE(DaemonClient::create({.socket = std::string(108, 'x')}));
  EXPECT_FALSE(DaemonClient::create({.socket = "/tmp/s", .name = std::string(65, 'x')}));
  EXPECT_FALSE(DaemonClient::create(
      {.socket = "/tmp/s", .salt = tiers::TenantSalt(std::string(1025, 'x'))}));
}

}  // namespace
}  // namespace terrace::node
