#include "doctor_cuda.hpp"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "core/temporary_folder.hpp"

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DoctorCuda, ADriverIsHeldAgainstWhatTheProgramNeeds) {
  const auto driver = [](const char* version, const char* toolkit) {
    return check_cuda_driver(
        fmt::format("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release",
                    version),
        toolkit);
  };
  EXPECT_EQ(driver("580.65.06", "13.0").status, CheckStatus::ok);
  EXPECT_EQ(driver("570.86.10", "12.8").status, CheckStatus::ok);
  const CheckResult old = driver("570.86.10", "13.0");
  EXPECT_EQ(old.status, CheckStatus::warn);
  EXPECT_THAT(old.found, HasSubstr("570.86.10"));
  EXPECT_THAT(old.advice, HasSubstr("driver 580"));
  EXPECT_EQ(driver("of tomorrow", "13.0").status, CheckStatus::warn);
  const CheckResult none = check_cuda_driver("", "none");
  EXPECT_EQ(none.status, CheckStatus::skip);
  EXPECT_THAT(none.advice, HasSubstr("driver 580"));
}

TEST(DoctorCuda, TheBackendIsAskedForADeviceBeforeTheSystem) {
  const offload::BackendInfo found{"cuda", true, "Model X"};
  for (const bool seen : {true, false}) {
    EXPECT_EQ(check_cuda_device(found, seen).status, CheckStatus::ok);
    EXPECT_EQ(check_cuda_device(found, seen).found, "Model X");
  }
  const offload::BackendInfo failed{"cuda", false, "the device is taken: end the other program"};
  const CheckResult refused = check_cuda_device(failed, true);
  EXPECT_EQ(refused.status, CheckStatus::warn);
  EXPECT_EQ(refused.advice, failed.reason);
  const CheckResult none = check_cuda_device(failed, false);
  EXPECT_EQ(none.status, CheckStatus::skip);
  EXPECT_EQ(none.found, failed.reason);
}

class DoctorToolkit : public testing::Test {
 protected:
  void make(const char* name, int version) const {
    for (const char* const part : {"bin", "include"}) fs::create_directories(folder_ / name / part);
    std::ofstream(folder_ / name / "bin" / "nvcc") << "x";
    std::ofstream header(folder_ / name / "include" / "cuda.h");
    if (version != 0) header << "// CUDA\n#define CUDA_VERSION " << version;
  }
  [[nodiscard]] CheckResult check(const char* name) const {
    return check_cuda_toolkit(std::array{folder_ / "nowhere", folder_ / name});
  }

  TemporaryFolder folder_;
};

TEST_F(DoctorToolkit, OneThatIsTooOldToBuildWithIsToldApart) {
  const CheckResult none = check("none");
  EXPECT_EQ(none.status, CheckStatus::skip);
  EXPECT_THAT(none.advice, HasSubstr("12.8"));
  make("silent", 0);
  EXPECT_EQ(check("silent").status, CheckStatus::warn);
  make("old", 12'060);
  EXPECT_EQ(check("old").status, CheckStatus::warn);
  EXPECT_THAT(check("old").advice, HasSubstr("12.8"));
  make("oldest", 12'080);
  EXPECT_EQ(check("oldest").status, CheckStatus::ok);
  make("new", 13'000);
  EXPECT_THAT(check("new").found, HasSubstr("CUDA 13.0"));
}

TEST_F(DoctorToolkit, IsLookedForWhereTheUserPutIt) {
  EXPECT_THAT(toolkit_folders("/opt/cuda", "/opt/me/bin:/usr/bin:/sbin:/opt/cuda-13/bin"),
              ElementsAre("/opt/cuda", "/opt/me", "/usr", "/opt/cuda-13", "/usr/local/cuda"));
  EXPECT_THAT(toolkit_folders("", ""), ElementsAre("/usr/local/cuda"));
}

}  // namespace
}  // namespace terrace::apps
