#include "doctor_checks.hpp"

#include <fmt/chrono.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "core/temporary_folder.hpp"
#include "machine.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/offload/tier_store.hpp"
#include "terrace/runtime/machine_profile.hpp"
#include "tier_sizes.hpp"

namespace terrace::apps {
namespace {

std::vector<CheckResult> checks_of(const Config& config) {
  return run_checks({.config = config, .profile = read_profile(config)});
}

CheckResult find_check(const std::vector<CheckResult>& results, std::string_view name) {
  const auto found = std::ranges::find(results, name, &CheckResult::check);
  return found == results.end() ? CheckResult{} : *found;
}

TEST(DoctorChecks, EachHasANameOfItsOwnAndSaysWhatItFound) {
  std::set<std::string_view> names;
  for (const CheckResult& result : checks_of({})) {
    EXPECT_TRUE(names.insert(result.check).second) << result.check;
    EXPECT_FALSE(result.found.empty()) << result.check;
    EXPECT_TRUE(result.status != CheckStatus::warn || !result.advice.empty()) << result.check;
  }
}

TEST(DoctorChecks, TheDefaultConfigIsUsableAnywhere) {
  EXPECT_EQ(find_check(checks_of({}), "config").status, CheckStatus::ok);
}

TEST(DoctorChecks, SayWhichBackendIsTakenAndWhy) {
  const CheckResult taken = find_check(checks_of({}), "backend");
  EXPECT_EQ(taken.status, CheckStatus::ok);
  EXPECT_NE(taken.found.find("auto: "), std::string::npos) << taken.found;
  Config config;
  ASSERT_TRUE(config.set("backend", "cuda", {ConfigOrigin::flag, "--set"}));
  const bool has_device = offload::list_backends().front().available;
  EXPECT_EQ(find_check(checks_of(config), "backend").status,
            has_device ? CheckStatus::ok : CheckStatus::fail);
}

TEST(DoctorChecks, AProfileThatIsNotThereFails) {
  Config config;
  ASSERT_TRUE(config.set("profile", "/nowhere.yaml", {ConfigOrigin::flag, "--set"}));
  EXPECT_EQ(find_check(checks_of(config), "profile").status, CheckStatus::fail);
}

TEST(DoctorChecks, AProfileAgesByTheDateInIt) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "profile.yaml";
  const Machine machine = read_machine();
  const auto status_on = [&](const std::string& date) {
    std::ofstream(path)
        << MachineProfile{.date = date, .cpu = machine.cpu, .isa = machine.isa}.to_yaml();
    Config config;
    EXPECT_TRUE(config.set("profile", path.string(), {ConfigOrigin::flag, "--set"}));
    return find_check(checks_of(config), "profile").status;
  };
  EXPECT_EQ(status_on(fmt::format("{:%Y-%m-%d}", std::chrono::system_clock::now())),
            CheckStatus::ok);
  EXPECT_EQ(status_on("2020-03-01"), CheckStatus::warn);
  EXPECT_EQ(status_on("once"), CheckStatus::warn);
}

TEST(DoctorChecks, AProfileSaysWhatItLacks) {
  const CheckResult none = find_check(checks_of({}), "profile");
  EXPECT_EQ(none.status, CheckStatus::skip);
  EXPECT_NE(none.advice.find("--write-profile"), std::string::npos) << none.advice;
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "profile.yaml";
  const Machine machine = read_machine();
  MachineProfile profile{.date = fmt::format("{:%Y-%m-%d}", std::chrono::system_clock::now()),
                         .cpu = machine.cpu,
                         .isa = machine.isa};
  Config config;
  ASSERT_TRUE(config.set("profile", path.string(), {ConfigOrigin::flag, "--set"}));
  for (const bool measured : {false, true}) {
    if (measured) profile.link = {.bandwidth = 1e9, .latency = 1e-5};
    std::ofstream(path) << profile.to_yaml();
    const CheckResult result = find_check(checks_of(config), "profile");
    EXPECT_EQ(result.status, CheckStatus::ok);
    EXPECT_EQ(result.found.find("link") == std::string::npos, measured) << result.found;
    EXPECT_EQ(result.advice.find("bench pcie") == std::string::npos, measured) << result.advice;
  }
  const std::string rows = (folder / "rows").string();
  ASSERT_TRUE(config.set("tier.nvme.path", rows, {ConfigOrigin::flag, "--set"}));
  for (const bool measured : {false, true}) {
    if (measured) profile.nvme = {.read = 2e9, .write = 1e9, .latency = 1e-4};
    std::ofstream(path) << profile.to_yaml();
    const CheckResult result = find_check(checks_of(config), "profile");
    EXPECT_EQ(result.status, CheckStatus::ok);
    EXPECT_EQ(result.advice.find("bench nvme") == std::string::npos, measured) << result.advice;
  }
}

TEST(DoctorChecks, APolicyThatIsNotThereFails) {
  Config config;
  ASSERT_TRUE(config.set("retrieval.policy", "guess", {ConfigOrigin::flag, "--set"}));
  const CheckResult result = find_check(checks_of(config), "config");
  EXPECT_EQ(result.status, CheckStatus::fail);
  EXPECT_NE(result.found.find("guess"), std::string::npos);
}

CheckResult check_with(std::string_view key, const std::string& value, std::string_view check) {
  Config config;
  EXPECT_TRUE(config.set(key, value, {ConfigOrigin::flag, "--set"}));
  return find_check(checks_of(config), check);
}

TEST(DoctorChecks, SayWhatAFileBelowTheHostLacks) {
  EXPECT_EQ(find_check(checks_of({}), "nvme").status, CheckStatus::skip);
  const TemporaryFolder folder;
  const std::string file = (folder / "rows").string();
  EXPECT_EQ(check_with("tier.nvme.path", "/nowhere/rows", "nvme").status, CheckStatus::fail);
  Config large;
  ASSERT_TRUE(large.set("tier.nvme.path", file, {ConfigOrigin::flag, "--set"}));
  ASSERT_TRUE(large.set("tier.nvme.bytes", "8000000GiB", {ConfigOrigin::flag, "--set"}));
  const CheckResult too_large = find_check(checks_of(large), "nvme");
  EXPECT_EQ(too_large.status, CheckStatus::fail);
  EXPECT_NE(too_large.advice.find("tier.nvme.bytes"), std::string::npos) << too_large.advice;
  const auto store = offload::open_tier_store({.path = file, .bytes = 1 << 20});
  ASSERT_TRUE(store.has_value());
  const CheckResult taken = check_with("tier.nvme.path", file, "nvme");
  EXPECT_EQ(taken.status, CheckStatus::fail);
  EXPECT_NE(taken.advice.find("another process"), std::string::npos) << taken.advice;
}

TEST(DoctorChecks, SayThatAFileInMemoryIsForPrefixesAlone) {
  struct statfs found{};
  const bool is_there = ::statfs("/dev/shm", &found) == 0 && found.f_type == TMPFS_MAGIC;
  if (!is_there) GTEST_SKIP() << "no memory is mounted as a folder here";
  const CheckResult result = check_with("tier.nvme.path", "/dev/shm/rows", "nvme");
  EXPECT_NE(result.found.find("tmpfs"), std::string::npos) << result.found;
  EXPECT_EQ(result.status, CheckStatus::warn);
  EXPECT_NE(result.advice.find("prefixes alone"), std::string::npos) << result.advice;
}

/// Returns a config of sizes, given as texts; an empty one stays the default.
Config config_of_sizes(const char* host, const char* file, const char* daemon) {
  Config config;
  const ConfigSource flag{ConfigOrigin::flag, "--set"};
  const auto set = [&](std::string_view key, std::string_view text) {
    if (!text.empty()) EXPECT_TRUE(config.set(key, text, flag)) << key;
  };
  set("tier.nvme.path", "/rows");
  set("host.memory", host);
  set("tier.nvme.bytes", file);
  set("daemon.memory", daemon);
  return config;
}

TEST(TierSizes, OfAFileBelowALargerHostAreAFault) {
  EXPECT_TRUE(fault_of_file_size(config_of_sizes("2GiB", "1GiB", "")));
  EXPECT_FALSE(fault_of_file_size(config_of_sizes("1GiB", "1GiB", "")));
  EXPECT_FALSE(fault_of_file_size(config_of_sizes("", "1GiB", "")));
  EXPECT_FALSE(fault_of_file_size(config_of_sizes("unlimited", "1GiB", "")));
  Config without_file;
  ASSERT_TRUE(without_file.set("host.memory", "1TiB", {ConfigOrigin::flag, "--set"}));
  EXPECT_FALSE(fault_of_file_size(without_file));
}

TEST(TierSizes, OfADaemonsMemoryAboveItsFileAreAFaultWhereSomebodyAsksForIt) {
  EXPECT_TRUE(fault_of_daemon_memory(config_of_sizes("", "1GiB", "2GiB")));
  EXPECT_FALSE(fault_of_daemon_memory(config_of_sizes("", "1GiB", "1GiB")));
  EXPECT_FALSE(fault_of_daemon_memory(config_of_sizes("", "1MiB", "")));
}

TEST(DoctorChecks, AskServersAndADaemonThatAreNamed) {
  const CheckResult remote = check_with("tier.remote.url", "redis://:word@127.0.0.1:1", "remote");
  EXPECT_EQ(remote.status, CheckStatus::fail);
  EXPECT_EQ(remote.found.find("word"), std::string::npos) << remote.found;
  const TemporaryFolder folder;
  const std::string socket = (folder / "terraced.sock").string();
  EXPECT_EQ(check_with("daemon.socket", socket, "daemon").status, CheckStatus::fail);
  const auto daemon = node::Daemon::open(
      {.socket = socket, .file = {.path = (folder / "chunks").string(), .bytes = 1 << 20}});
  ASSERT_TRUE(daemon.has_value()) << daemon.error().message();
  std::thread serving([&] { EXPECT_TRUE((*daemon)->serve().has_value()); });
  const CheckResult found = check_with("daemon.socket", socket, "daemon");
  EXPECT_EQ(found.status, CheckStatus::ok) << found.found;
  EXPECT_NE(found.found.find("0 chunks, 1 clients"), std::string::npos) << found.found;
  (*daemon)->stop();
  serving.join();
}

}  // namespace
}  // namespace terrace::apps
