// Runtimes and queues by calls of C.
#include "terrace/runtime/runtime.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "bindings_c/handles.hpp"
#include "terrace/core/version.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::testing {
namespace {

void expect_no_runtime(Settings settings, const terrace_shape& shape, terrace_status status,
                       const std::string& part) {
  const ConfigHandle config = make_config(settings);
  auto* runtime = reinterpret_cast<terrace_runtime*>(config.get());  // left over
  expect_failure(terrace_runtime_open(config.get(), &shape, &runtime), status, part);
  EXPECT_EQ(runtime, nullptr);
}

TEST(CLibrary, SaysItsVersions) {
  EXPECT_EQ(std::string(terrace_version()), version());
  const std::string of_header = std::to_string(TERRACE_VERSION_MAJOR) + "." +
                                std::to_string(TERRACE_VERSION_MINOR) + "." +
                                std::to_string(TERRACE_VERSION_PATCH);
  EXPECT_EQ(of_header, version());
  EXPECT_EQ(terrace_abi_version(), std::uint32_t{TERRACE_ABI_VERSION});
}

TEST(CRuntime, HasDefaultSettingsWhereNoneAreGiven) {
  const terrace_shape shape = shape_of(small_shape);
  terrace_runtime* runtime = nullptr;
  ASSERT_EQ(terrace_runtime_open(nullptr, &shape, &runtime), TERRACE_OK) << terrace_message();
  const char* text = nullptr;
  EXPECT_OK(terrace_runtime_traits(runtime, &text));
  EXPECT_EQ(nlohmann::json::parse(text).at("retrieval"), "signs");
  terrace_runtime_close(runtime);
}

TEST(CRuntime, SaysWhatItIs) {
  const RuntimeHandle runtime =
      open_runtime({{"retrieval.policy", "qpq"}, {"device.memory", "64MiB"}});
  const char* text = nullptr;
  EXPECT_OK(terrace_runtime_traits(runtime.get(), &text));
  const auto traits = nlohmann::json::parse(text);
  EXPECT_EQ(traits.at("retrieval"), "qpq");
  EXPECT_EQ(traits.at("backend").at("name"), "host");
  EXPECT_EQ(traits.at("retention"), nullptr);
  EXPECT_EQ(traits.at("device_memory"), 64U << 20U);
  EXPECT_EQ(traits.at("offloads"), true);
  EXPECT_GT(traits.at("needs").at("query_window_tokens"), 0);
}

/// A runtime of C++ with the settings of open_runtime().
std::unique_ptr<Runtime> open_in_cpp() {
  Config config;
  for (const auto& [key, value] : small_settings) {
    EXPECT_TRUE(config.set(key, value, {ConfigOrigin::flag, "test"}));
  }
  const auto options = RuntimeOptions::from(config, small_shape).value();
  return Runtime::open(options, offload::make_backend("host", {}).value().backend).value();
}

TEST(CRuntime, SaysTheDeviceMemoryOfASequence) {
  const RuntimeHandle runtime = open_runtime();
  const MemoryNeed expected = open_in_cpp()->memory_need({.tokens = 1000}).value();
  EXPECT_EQ(terrace_runtime_device_bytes(runtime.get(), 1000), expected.device_held);
  EXPECT_GT(expected.device_held, 0U);
  EXPECT_EQ(terrace_runtime_device_bytes(runtime.get(), SIZE_MAX - 1), SIZE_MAX);
}

TEST(CRuntime, SaysTheMemoryOfASequenceInEachTier) {
  const RuntimeHandle runtime = open_runtime();
  terrace_need_query query = TERRACE_NEED_QUERY_INIT;
  query.tokens = 5000;
  query.step_tokens = 64;
  query.prompt_tokens = 1000;
  query.draft_tokens = 3;
  query.later_prompt_tokens = 2000;
  query.cache_sharers = 2;
  query.dtype = TERRACE_DTYPE_BF16;
  const MemoryNeed expected = open_in_cpp()
                                  ->memory_need({.tokens = 5000,
                                                 .step_tokens = 64,
                                                 .prompt_tokens = 1000,
                                                 .draft_tokens = 3,
                                                 .later_prompt_tokens = 2000,
                                                 .queries = Dtype::bf16,
                                                 .cache_sharers = 2})
                                  .value();
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  EXPECT_OK(terrace_runtime_memory_need(runtime.get(), &query, &need));
  EXPECT_EQ((MemoryNeed{need.device_held, need.device_cache, need.device_step, need.device_shared,
                        need.host_rows, need.host_index, need.host_rest, need.index_bytes}),
            expected);
  EXPECT_GT(expected.device_step, 0U);
  EXPECT_GT(expected.host_rows, 0U);
  EXPECT_GT(expected.host_index, expected.index_bytes);
}

TEST(CRuntime, RefusesQueriesOfNeedThatAreNone) {
  const RuntimeHandle runtime = open_runtime();
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  const auto refused = [&](const terrace_need_query& query, const char* part) {
    expect_failure(terrace_runtime_memory_need(runtime.get(), &query, &need),
                   TERRACE_INVALID_ARGUMENT, part);
  };
  terrace_need_query query = TERRACE_NEED_QUERY_INIT;
  query.tokens = SIZE_MAX;
  refused(query, "a sequence may have");
  query = TERRACE_NEED_QUERY_INIT;
  query.dtype = 7;
  refused(query, "query.dtype is 7");
  query = TERRACE_NEED_QUERY_INIT;
  query.reserved = 1;
  refused(query, "query.reserved is 1");
}

TEST(CRuntime, CountsItsSequences) {
  const RuntimeHandle runtime = open_runtime();
  const SequenceHandle one = open_sequence(runtime);
  {
    const SequenceHandle other = open_sequence(runtime);
    EXPECT_EQ(terrace_runtime_sequences(runtime.get()), 2U);
  }
  EXPECT_EQ(terrace_runtime_sequences(runtime.get()), 1U);
}

TEST(CRuntime, RefusesShapesThatAreNone) {
  terrace_shape shape = shape_of(small_shape);
  shape.kv_heads = 3;
  expect_no_runtime({}, shape, TERRACE_INVALID_ARGUMENT, "3 KV heads");
  shape = shape_of(small_shape);
  shape.dtype = 7;
  expect_no_runtime({}, shape, TERRACE_INVALID_ARGUMENT, "shape.dtype is 7");
  shape = shape_of(small_shape);
  shape.softmax_scale = -1;
  expect_no_runtime({}, shape, TERRACE_INVALID_ARGUMENT, "softmax_scale");
}

TEST(CRuntime, RefusesADtypeThatSettingsContradict) {
  expect_no_runtime({{"kv.dtype", "bf16"}}, shape_of(small_shape), TERRACE_INVALID_ARGUMENT,
                    "kv.dtype is bf16");
  EXPECT_NE(open_runtime({{"kv.dtype", "f16"}}), nullptr);
}

TEST(CRuntime, TakesTheShapesDtypeWhereAFileNamesAnotherOne) {
  const ConfigHandle config = make_config({});
  ASSERT_EQ(terrace_config_parse(config.get(), "kv.dtype: bf16", "tuned.yaml"), TERRACE_OK);
  const terrace_shape shape = shape_of(small_shape);
  terrace_runtime* opened = nullptr;
  ASSERT_EQ(terrace_runtime_open(config.get(), &shape, &opened), TERRACE_OK);
  const RuntimeHandle runtime(opened);
  EXPECT_EQ(terrace_runtime_device_bytes(opened, 1000),
            terrace_runtime_device_bytes(open_runtime().get(), 1000));
}

TEST(CRuntime, RefusesSettingsThatWouldHaveNoEffect) {
  const terrace_shape shape = shape_of(small_shape);
  expect_no_runtime({{"isa", "avx2"}}, shape, TERRACE_UNSUPPORTED, "isa");
  for (const char* key : {"profile", "retention.gates", "retention.outlier_heads"}) {
    expect_no_runtime({{key, "some"}}, shape, TERRACE_UNSUPPORTED, key);
  }
}

TEST(CRuntime, RefusesSettingsThatCannotBe) {
  const terrace_shape shape = shape_of(small_shape);
  expect_no_runtime({{"retrieval.policy", "none_such"}}, shape, TERRACE_INVALID_ARGUMENT,
                    "none_such");
  expect_no_runtime({{"retrieval.budget", "mass:0.9"}}, shape, TERRACE_UNSUPPORTED, "pqcache");
}

TEST(CRuntime, RefusesNull) {
  const RuntimeHandle runtime = open_runtime();
  const terrace_shape shape = shape_of(small_shape);
  terrace_runtime* opened = nullptr;
  const char* text = nullptr;
  const auto refused = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "is NULL");
  };
  refused(terrace_runtime_open(nullptr, nullptr, &opened));
  refused(terrace_runtime_open(nullptr, &shape, nullptr));
  refused(terrace_runtime_traits(nullptr, &text));
  refused(terrace_runtime_traits(runtime.get(), nullptr));
  const terrace_need_query query = TERRACE_NEED_QUERY_INIT;
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  refused(terrace_runtime_memory_need(nullptr, &query, &need));
  refused(terrace_runtime_memory_need(runtime.get(), nullptr, &need));
  refused(terrace_runtime_memory_need(runtime.get(), &query, nullptr));
  EXPECT_EQ(terrace_runtime_device_bytes(nullptr, 1000), 0U);
  EXPECT_EQ(terrace_runtime_sequences(nullptr), 0U);
  terrace_runtime_close(nullptr);
}

TEST(CQueue, OfAStreamIsUnsupportedWithoutCuda) {
  if (build_info().cuda != "none") GTEST_SKIP() << "this build has CUDA";
  const RuntimeHandle runtime = open_runtime();
  terrace_queue* queue = nullptr;
  expect_failure(terrace_queue_wrap_stream(runtime.get(), nullptr, nullptr, &queue),
                 TERRACE_UNSUPPORTED, "no CUDA");
  EXPECT_EQ(queue, nullptr);
}

TEST(CQueue, OfTheBackendDrains) {
  const RuntimeHandle runtime = open_runtime();
  terrace_queue_options options = TERRACE_QUEUE_OPTIONS_INIT;
  options.name = "mine";
  options.wait_timeout_ns = 1'000'000'000;
  terrace_queue* queue = nullptr;
  ASSERT_EQ(terrace_queue_open(runtime.get(), &options, &queue), TERRACE_OK);
  EXPECT_OK(terrace_queue_drain(queue, UINT64_MAX));
  terrace_queue_close(queue);
}

TEST(CQueue, RefusesNull) {
  const RuntimeHandle runtime = open_runtime();
  terrace_queue* queue = nullptr;
  const auto refused = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "is NULL");
  };
  refused(terrace_queue_open(nullptr, nullptr, &queue));
  refused(terrace_queue_open(runtime.get(), nullptr, nullptr));
  refused(terrace_queue_wrap_caller(nullptr, nullptr, &queue));
  refused(terrace_queue_wrap_caller(runtime.get(), nullptr, nullptr));
  refused(terrace_queue_wrap_stream(nullptr, nullptr, nullptr, &queue));
  refused(terrace_queue_wrap_stream(runtime.get(), nullptr, nullptr, nullptr));
  refused(terrace_queue_drain(nullptr, 0));
  terrace_queue_close(nullptr);
}

}  // namespace
}  // namespace terrace::testing
