#include "doctor_checks.hpp"

#include <fmt/chrono.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "machine.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {
namespace {

CheckResult find_check(const std::vector<CheckResult>& results, std::string_view name) {
  const auto found = std::ranges::find(results, name, &CheckResult::check);
  return found == results.end() ? CheckResult{} : *found;
}

TEST(DoctorChecks, EachHasANameOfItsOwnAndSaysWhatItFound) {
  std::set<std::string_view> names;
  for (const CheckResult& result : run_checks(Config{})) {
    EXPECT_TRUE(names.insert(result.check).second) << result.check;
    EXPECT_FALSE(result.found.empty()) << result.check;
    EXPECT_TRUE(result.status != CheckStatus::warn || !result.advice.empty()) << result.check;
  }
}

TEST(DoctorChecks, TheDefaultConfigIsUsableAnywhere) {
  EXPECT_EQ(find_check(run_checks(Config{}), "config").status, CheckStatus::ok);
}

TEST(DoctorChecks, SayWhichBackendIsTakenAndWhy) {
  const CheckResult taken = find_check(run_checks(Config{}), "backend");
  EXPECT_EQ(taken.status, CheckStatus::ok);
  EXPECT_NE(taken.found.find("auto: "), std::string::npos) << taken.found;
  Config config;
  ASSERT_TRUE(config.set("backend", "sim", {ConfigOrigin::flag, "--set"}));
  EXPECT_EQ(find_check(run_checks(config), "backend").status, CheckStatus::fail);
}

TEST(DoctorChecks, AProfileThatIsNotThereFails) {
  Config config;
  ASSERT_TRUE(config.set("profile", "/nowhere.yaml", {ConfigOrigin::flag, "--set"}));
  EXPECT_EQ(find_check(run_checks(config), "profile").status, CheckStatus::fail);
}

TEST(DoctorChecks, AProfileAgesByTheDateInIt) {
  const auto path = std::filesystem::temp_directory_path() / "terrace_doctor_profile.yaml";
  const Machine machine = read_machine();
  const auto status_on = [&](const std::string& date) {
    std::ofstream(path)
        << MachineProfile{.date = date, .cpu = machine.cpu, .isa = machine.isa}.to_yaml();
    Config config;
    EXPECT_TRUE(config.set("profile", path.string(), {ConfigOrigin::flag, "--set"}));
    return find_check(run_checks(config), "profile").status;
  };
  EXPECT_EQ(status_on(fmt::format("{:%Y-%m-%d}", std::chrono::system_clock::now())),
            CheckStatus::ok);
  EXPECT_EQ(status_on("2020-03-01"), CheckStatus::warn);
  EXPECT_EQ(status_on("once"), CheckStatus::warn);
  std::filesystem::remove(path);
}

TEST(DoctorChecks, AToolkitThatIsTooOldToBuildWithIsToldApart) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "terrace_doctor_toolkit";
  fs::remove_all(folder);
  EXPECT_EQ(check_cuda_toolkit(folder).status, CheckStatus::skip);
  for (const char* const part : {"bin", "include"}) fs::create_directories(folder / part);
  std::ofstream(folder / "bin" / "nvcc") << "x";
  EXPECT_EQ(check_cuda_toolkit(folder).status, CheckStatus::warn) << "no header";
  const auto with_version = [&](int version) {
    std::ofstream(folder / "include" / "cuda.h") << "// CUDA\n#define CUDA_VERSION " << version;
    return check_cuda_toolkit(folder);
  };
  EXPECT_EQ(with_version(12'060).status, CheckStatus::warn);
  EXPECT_NE(with_version(12'060).advice.find("12.8"), std::string::npos);
  EXPECT_EQ(with_version(12'080).status, CheckStatus::ok);
  EXPECT_NE(with_version(13'000).found.find("CUDA 13.0"), std::string::npos);
  fs::remove_all(folder);
}

TEST(DoctorChecks, APolicyThatIsNotThereFails) {
  Config config;
  ASSERT_TRUE(config.set("retrieval.policy", "guess", {ConfigOrigin::flag, "--set"}));
  const CheckResult result = find_check(run_checks(config), "config");
  EXPECT_EQ(result.status, CheckStatus::fail);
  EXPECT_NE(result.found.find("guess"), std::string::npos);
}

}  // namespace
}  // namespace terrace::apps
