#include "backend_choice.hpp"

#include <gtest/gtest.h>

namespace terrace::apps {
namespace {

const ConfigSource flag{ConfigOrigin::flag, "--set"};

TEST(BackendOptions, TakeTheSizeWhereCopiesSwitchOverFromTheProfile) {
  MachineProfile profile;
  EXPECT_EQ(backend_options({}, {.profile = &profile}).cuda.switch_over_bytes, 0U);
  profile.link = {.bandwidth = 1e9, .latency = 1e-5, .switch_over = 65536};
  EXPECT_EQ(backend_options({}, {.profile = &profile}).cuda.switch_over_bytes, 65536U);
}

TEST(BackendChoice, IsTheOneThatTheConfigNames) {
  Config config;
  ASSERT_TRUE(config.set("backend", "host", flag));
  const auto found = find_backend(config);
  ASSERT_TRUE(found);
  EXPECT_EQ(describe(*found), "host (asked for)");
}

TEST(BackendChoice, IsDescribedWithItsDevice) {
  EXPECT_EQ(describe({"cuda", "asked for", "NVIDIA H100"}), "cuda on NVIDIA H100 (asked for)");
}

}  // namespace
}  // namespace terrace::apps
