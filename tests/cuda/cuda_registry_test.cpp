// Which backend a name leads to where CUDA is not there, and where it is and fails: on the
// stand-in.
#include <gmock/gmock.h>

#include "cuda_on_host/control.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::offload {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Absence {
  cuda_on_host::DeviceTraits traits;
  const char* said;
};

TEST(CudaRegistry, WithoutCudaTheNameIsAnErrorAndAutoTakesTheHostAndSaysWhy) {
  cuda_on_host::Device device;
  for (const auto& [traits, said] :
       {Absence{{.driver = false}, "no NVIDIA driver"},
        {{.driver_version = 12040}, "the NVIDIA driver is for CUDA 12.4"},
        {{.device_count = 0}, "CUDA_VISIBLE_DEVICES"},
        {{.host_pointers_of_registered = false}, "cannot read locked host memory"}}) {
    SCOPED_TRACE(said);
    device.set(traits);
    const auto cuda = make_backend("cuda", {});
    ASSERT_FALSE(cuda);
    EXPECT_EQ(cuda.error().code, Errc::unsupported);
    const std::string message(cuda.error().message());
    EXPECT_THAT(message, StartsWith("backend cuda: "));
    EXPECT_THAT(message, HasSubstr(said));
    const auto best = make_backend("auto", {});
    ASSERT_TRUE(best) << best.error().message();
    EXPECT_EQ(best->choice.name, "host");
    EXPECT_THAT(best->choice.reason, HasSubstr(said));
  }
}

struct Failure {
  const char* call;
  cudaError_t error;
  const char* said;
};

TEST(CudaRegistry, ADeviceThatIsThereAndFailsIsAnErrorByEitherName) {
  cuda_on_host::Device device;
  for (const auto& [call, error, said] :
       {Failure{"cudaGetDeviceCount", cudaErrorInitializationError, "/dev/nvidia*"},
        {"cudaGetDeviceCount", cudaErrorSystemNotReady, "nvidia-fabricmanager"},
        {"cudaGetDeviceProperties", cudaErrorECCUncorrectable, "the device is lost"},
        {"cudaSetDevice", cudaErrorDevicesUnavailable, "Exclusive_Process"}}) {
    for (const char* const name : {"auto", "cuda"}) {
      SCOPED_TRACE(fmt::format("{}: {}", name, said));
      device.set({});
      for (const std::uint64_t nth : {1U, 2U}) device.fail(call, {.nth = nth, .error = error});
      const auto made = make_backend(name, {});
      ASSERT_FALSE(made);
      EXPECT_NE(made.error().code, Errc::unsupported);
      EXPECT_EQ(made.error().native, error);
      const std::string message(made.error().message());
      EXPECT_THAT(message, StartsWith(fmt::format("backend {}: ", name)));
      EXPECT_THAT(message, HasSubstr(said));
    }
  }
}

TEST(CudaRegistry, AutoTakesADeviceThatCanBeUsed) {
  const cuda_on_host::Device device;
  const auto best = make_backend("auto", {});
  ASSERT_TRUE(best) << best.error().message();
  EXPECT_EQ(best->choice.name, "cuda");
  EXPECT_EQ(best->choice.device, "stand-in on the host");
}

}  // namespace
}  // namespace terrace::offload
