// Tests that need a device are skipped without one; where TERRACE_REQUIRE_GPU is set they fail.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "terrace/offload/cuda/cuda_backend.hpp"

namespace terrace {
namespace {

class DeviceRequired : public ::testing::Environment {
 public:
  void SetUp() override {
    const auto device = offload::CudaBackend::probe(0);
    if (device) return;
    if (std::getenv("TERRACE_REQUIRE_GPU") != nullptr) FAIL() << device.error().message();
    std::puts("[  SKIPPED ] all: no device");  // what ctest looks for
    GTEST_SKIP() << device.error().message();
  }
};

// GoogleTest owns it.
[[maybe_unused]] const auto* const required =
    ::testing::AddGlobalTestEnvironment(new DeviceRequired);

}  // namespace
}  // namespace terrace
