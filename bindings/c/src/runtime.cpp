#include "terrace/runtime/runtime.hpp"

#include "handles.hpp"
#include "json.hpp"
#include "sized_struct.hpp"
#include "values.hpp"

namespace terrace::bindings {
namespace {

/// Has the shape's dtype in the settings, over those of files and the environment: a file serves
/// models of any dtype. Errors: invalid_argument: the program itself named another one.
Status agree_on_dtype(Config& config, Dtype dtype) {
  const bool named = config.source("kv.dtype").origin == ConfigOrigin::flag;
  if (named && !config.is("kv.dtype", to_string(dtype))) {
    return fail(Errc::invalid_argument, "shape.dtype is {}, and kv.dtype is {}; they must agree",
                to_string(dtype), config.text("kv.dtype"));
  }
  return config.set("kv.dtype", to_string(dtype), {ConfigOrigin::flag, "shape.dtype"});
}

/// Refuses settings that would have no effect: the command line alone heeds them.
Status refuse_settings_of_the_program(const Config& config) {
  for (const char* key : {"isa", "profile", "retention.gates", "retention.outlier_heads"}) {
    if (config.is(key, find_config_key(key)->default_text)) continue;
    return fail(Errc::unsupported,
                "{} ({}) has an effect in the program terrace alone, not yet in libterrace.so: "
                "leave it out",
                key, config.source(key).place);
  }
  return {};
}

Result<KvShape> read_shape(const terrace_shape* given) {
  constexpr std::size_t size_min = offsetof(terrace_shape, dtype);
  TERRACE_ASSIGN(const terrace_shape shape,
                 read_struct<terrace_shape>(given, TERRACE_SHAPE_INIT, size_min, "shape"));
  TERRACE_ASSIGN(const Dtype dtype, dtype_of(shape.dtype, "shape.dtype"));
  return KvShape{.layers = shape.layers,
                 .query_heads = shape.query_heads,
                 .kv_heads = shape.kv_heads,
                 .head_dim = shape.head_dim,
                 .dtype = dtype,
                 .softmax_scale = shape.softmax_scale};
}

Result<NeedQuery> read_query(const terrace_need_query* given) {
  constexpr std::size_t size_min = offsetof(terrace_need_query, step_tokens);
  TERRACE_ASSIGN(
      const terrace_need_query query,
      read_struct<terrace_need_query>(given, TERRACE_NEED_QUERY_INIT, size_min, "query"));
  TERRACE_TRY(check_reserved(query.reserved, "query"));
  TERRACE_ASSIGN(const Dtype dtype, dtype_of(query.dtype, "query.dtype"));
  return NeedQuery{.tokens = query.tokens,
                   .step_tokens = query.step_tokens,
                   .prompt_tokens = query.prompt_tokens,
                   .draft_tokens = query.draft_tokens,
                   .later_prompt_tokens = query.later_prompt_tokens,
                   .queries = dtype,
                   .cache_sharers = query.cache_sharers};
}

terrace_memory_need need_of(const MemoryNeed& need) {
  return {.size = sizeof(terrace_memory_need),
          .device_held = need.device_held,
          .device_cache = need.device_cache,
          .device_step = need.device_step,
          .device_shared = need.device_shared,
          .host_rows = need.host_rows,
          .host_index = need.host_index,
          .host_rest = need.host_rest,
          .index_bytes = need.index_bytes};
}

Result<std::shared_ptr<SharedRuntime>> open_runtime(Config config, const KvShape& shape) {
  TERRACE_TRY(agree_on_dtype(config, shape.dtype));
  TERRACE_TRY(refuse_settings_of_the_program(config));
  TERRACE_TRY(config.validate());
  TERRACE_ASSIGN(RuntimeOptions options, RuntimeOptions::from(config, shape));
  TERRACE_ASSIGN(
      offload::ChosenBackend chosen,
      offload::make_backend(config.text("backend"), offload::BackendOptions::from(config)));
  auto shared = std::make_shared<SharedRuntime>();
  shared->backend = std::move(chosen.choice);
  TERRACE_ASSIGN(shared->runtime, Runtime::open(std::move(options), std::move(chosen.backend)));
  return shared;
}

}  // namespace
}  // namespace terrace::bindings

using namespace terrace;
using bindings::check_given;
using bindings::guarded;

terrace_status terrace_runtime_open(const terrace_config* config, const terrace_shape* shape,
                                    terrace_runtime** runtime) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(runtime, "terrace_runtime_open", "runtime"));
    *runtime = nullptr;
    TERRACE_ASSIGN(const KvShape of_model, bindings::read_shape(shape));
    TERRACE_ASSIGN(auto shared,
                   bindings::open_runtime(config == nullptr ? Config() : config->config, of_model));
    std::string traits = bindings::traits_as_json(*shared->runtime, shared->backend);
    *runtime = new terrace_runtime{std::move(shared), std::move(traits)};
    return {};
  });
}

void terrace_runtime_close(terrace_runtime* runtime) {
  if (runtime != nullptr) runtime->shared->closed.store(true, std::memory_order_relaxed);
  delete runtime;
}

terrace_status terrace_runtime_memory_need(const terrace_runtime* runtime,
                                           const terrace_need_query* query,
                                           terrace_memory_need* need) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(runtime, "terrace_runtime_memory_need", "runtime"));
    TERRACE_ASSIGN(const NeedQuery asked, bindings::read_query(query));
    TERRACE_ASSIGN(const MemoryNeed said, runtime->shared->runtime->memory_need(asked));
    return bindings::write_struct(need, bindings::need_of(said), "need");
  });
}

size_t terrace_runtime_device_bytes(const terrace_runtime* runtime, size_t tokens) {
  if (runtime == nullptr) return 0;
  const Result<MemoryNeed> need = runtime->shared->runtime->memory_need({.tokens = tokens});
  // No memory has room for tokens that no sequence may have.
  return need ? need->device_held : SIZE_MAX;
}

size_t terrace_runtime_sequences(const terrace_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->shared->sequences.load(std::memory_order_relaxed);
}

terrace_status terrace_runtime_traits(const terrace_runtime* runtime, const char** json) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(json, "terrace_runtime_traits", "json"));
    *json = nullptr;
    TERRACE_TRY(check_given(runtime, "terrace_runtime_traits", "runtime"));
    *json = runtime->traits.c_str();
    return {};
  });
}
