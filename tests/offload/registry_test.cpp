#include "terrace/offload/registry.hpp"

#include <gmock/gmock.h>

namespace terrace::offload {
namespace {

TEST(Registry, MakesWhatIsAskedForAndSaysWhatItTook) {
  for (const std::string_view name : {"host", "sim"}) {
    const auto chosen = make_backend(name, {});
    ASSERT_TRUE(chosen);
    EXPECT_EQ(chosen->name, name);
    EXPECT_EQ(chosen->backend->name(), name);
  }
}

TEST(Registry, AutoSaysWhyItTookTheHost) {
  const auto chosen = make_backend("auto", {});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->name, "host");
  EXPECT_THAT(std::string(chosen->reason), testing::HasSubstr("CUDA"));
}

TEST(Registry, NeverFallsBackSilently) {
  const auto cuda = make_backend("cuda", {});
  ASSERT_FALSE(cuda);
  EXPECT_EQ(cuda.error().code, Errc::unsupported);
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
