#include "doctor_checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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

TEST(DoctorChecks, APolicyThatIsNotThereFails) {
  Config config;
  ASSERT_TRUE(config.set("retrieval.policy", "guess", {ConfigOrigin::flag, "--set"}));
  const CheckResult result = find_check(run_checks(config), "config");
  EXPECT_EQ(result.status, CheckStatus::fail);
  EXPECT_NE(result.found.find("guess"), std::string::npos);
}

}  // namespace
}  // namespace terrace::apps
