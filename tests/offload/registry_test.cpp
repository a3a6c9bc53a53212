#include "terrace/offload/registry.hpp"

#include <gmock/gmock.h>

namespace terrace::offload {
namespace {

TEST(Registry, MakesWhatIsAskedForAndSaysWhatItTook) {
  for (const std::string_view name : {"host", "sim"}) {
    const auto chosen = make_backend(name, {});
    ASSERT_TRUE(chosen);
    EXPECT_EQ(chosen->choice.name, name);
    EXPECT_EQ(chosen->backend->name(), name);
    EXPECT_EQ(chosen->choice.reason, "asked for");
    EXPECT_EQ(chosen->choice.device, "");
  }
}

bool has_device() { return list_backends().front().available; }

TEST(Registry, AutoSaysWhyItTookTheHost) {
  if (has_device()) GTEST_SKIP() << "a device is there";
  const auto chosen = make_backend("auto", {});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->choice.name, "host");
  EXPECT_THAT(chosen->choice.reason, testing::HasSubstr("CUDA"));
}

TEST(Registry, NamesTheDeviceItTook) {
  if (!has_device()) GTEST_SKIP() << "no device is there";
  for (const std::string_view name : {"auto", "cuda"}) {
    EXPECT_EQ(make_backend(name, {}).value().choice.device, list_backends().front().reason);
  }
}

TEST(Registry, NeverFallsBackSilently) {
  const auto cuda = make_backend("cuda", {});
  ASSERT_EQ(cuda.has_value(), has_device());
  if (!cuda) {
    EXPECT_EQ(cuda.error().code, Errc::unsupported);
  }
  const auto unknown = make_backend("gpu", {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(unknown.error().message()), testing::HasSubstr("'gpu'"));
}

TEST(Registry, ListsEveryBackendWithAReason) {
  for (const BackendInfo& info : list_backends()) {
    EXPECT_FALSE(info.reason.empty());
    EXPECT_EQ(make_backend(info.name, {}).has_value(), info.available);
  }
}

}  // namespace
}  // namespace terrace::offload
