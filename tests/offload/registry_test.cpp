#include "terrace/offload/registry.hpp"

#include <gmock/gmock.h>

#include <initializer_list>
#include <utility>

#include "terrace/offload/container_limits.hpp"

namespace terrace::offload {
namespace {

TEST(Registry, MakesWhatIsAskedForAndSaysWhatItTook) {
  const auto chosen = make_backend("host", {});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->choice.name, "host");
  EXPECT_EQ(chosen->backend->name(), "host");
  EXPECT_EQ(chosen->choice.reason, "asked for");
  EXPECT_EQ(chosen->choice.device, "");
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

TEST(Registry, WrapsAStreamOnBackendCudaAlone) {
  const auto chosen = make_backend("host", {}).value();
  const auto wrapped = wrap_stream(*chosen.backend, nullptr, {});
  ASSERT_FALSE(wrapped);
  const bool built = make_backend("cuda", {}).has_value() ||
                     make_backend("cuda", {}).error().message().find("this build has no CUDA") ==
                         std::string_view::npos;
  EXPECT_EQ(wrapped.error().code, built ? Errc::invalid_argument : Errc::unsupported);
}

Config config_of(std::initializer_list<std::pair<std::string_view, std::string_view>> settings) {
  Config config;
  for (const auto& [key, value] : settings) {
    EXPECT_TRUE(config.set(key, value, {ConfigOrigin::flag, "--set"})) << key;
  }
  return config;
}

TEST(BackendOptions, AreThoseOfAConfig) {
  const BackendOptions options = BackendOptions::from(config_of({{"device.memory", "2MiB"},
                                                                 {"host.memory", "3MiB"},
                                                                 {"threads.device", "3"},
                                                                 {"link.bandwidth", "1GB/s"},
                                                                 {"link.latency", "5us"},
                                                                 {"host.huge_pages", "off"},
                                                                 {"host.numa", "off"},
                                                                 {"deadline", "7s"}}));
  EXPECT_EQ(options.host.device_memory_limit, 2U << 20);
  EXPECT_EQ(options.host.host_memory_limit, 3U << 20);
  EXPECT_EQ(options.host.device_threads, 3U);
  EXPECT_EQ(options.host.link.bandwidth_bytes_per_second, 1e9);
  EXPECT_EQ(options.host.link.latency, std::chrono::microseconds(5));
  EXPECT_EQ(options.host.huge_pages, HugePages::off);
  EXPECT_EQ(options.host.enqueue_timeout, std::chrono::seconds(7));
  EXPECT_EQ(options.cuda.device_memory_limit, 2U << 20);
  EXPECT_EQ(options.cuda.host_memory_limit, 3U << 20);
  EXPECT_EQ(options.cuda.host_threads, 3U);
  EXPECT_EQ(options.cuda.huge_pages, HugePages::off);
  EXPECT_EQ(options.cuda.enqueue_timeout, std::chrono::seconds(7));
  EXPECT_FALSE(options.cuda.near_device);
}

TEST(BackendOptions, OfNoSettingsAreTheDefaults) {
  const BackendOptions options = BackendOptions::from({});
  EXPECT_EQ(options.host.link.bandwidth_bytes_per_second, 0) << "no link is imitated";
  EXPECT_EQ(options.host.device_memory_limit,
            read_container_limits().memory_bytes.value_or(SIZE_MAX));
  EXPECT_EQ(options.host.host_memory_limit, usable_memory() / 5 * 4);
  EXPECT_EQ(options.cuda.host_memory_limit, options.host.host_memory_limit);
  EXPECT_EQ(options.host.huge_pages, HugePages::automatic);
  EXPECT_TRUE(options.cuda.near_device);
}

TEST(BackendOptions, MakeABackendWithTheLimitsOfTheConfig) {
  const Config config = config_of({{"backend", "host"}, {"device.memory", "2MiB"}});
  const auto chosen = make_backend(config.text("backend"), BackendOptions::from(config));
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->backend->memory(Tier::device).limit, 2U << 20);
}

}  // namespace
}  // namespace terrace::offload
