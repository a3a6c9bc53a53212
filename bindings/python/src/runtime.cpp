#include <nanobind/stl/string.h>

#include <chrono>
#include <limits>

#include "objects.hpp"
#include "tensors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace terrace::python {
namespace {

nb::object traits(Runtime& runtime) { return json_of(*runtime.handle, &terrace_runtime_traits); }

Runtime open_runtime(const nb::object& settings, Shape shape) {
  check_may_start_threads();
  Config config = config_of(settings);
  terrace_shape given = TERRACE_SHAPE_INIT;
  given.layers = shape.layers;
  given.query_heads = shape.query_heads;
  given.kv_heads = shape.kv_heads;
  given.head_dim = shape.head_dim;
  given.dtype = shape.dtype;
  given.softmax_scale = shape.softmax_scale;
  terrace_runtime* opened = nullptr;
  config.handle->use([&](terrace_config* c) { return terrace_runtime_open(c, &given, &opened); });
  Runtime runtime{hold<RuntimeHandle>("the runtime", opened), shape};
  const nb::object backend = traits(runtime)["backend"]["name"];
  runtime.shape.on_cuda = nb::cast<std::string>(backend) == "cuda";
  return runtime;
}

std::uint64_t read_nanoseconds(std::string_view name, GivenReal given) {
  constexpr std::string_view wanted = "a number of seconds from 0";
  const double seconds = read_real(name, given, wanted);
  if (!(seconds >= 0)) refuse_object(name, given.object, wanted);
  constexpr double most = 9e18;
  return static_cast<std::uint64_t>(std::min(seconds * 1e9, most));
}

/// Makes a queue by one of the functions of the C interface, which `make` binds.
template <typename Make>
Queue make_queue(Runtime& runtime, GivenText given_name, bool of_caller, Make&& make) {
  const std::string name = read_text("name", given_name);
  terrace_queue_options options = TERRACE_QUEUE_OPTIONS_INIT;
  options.name = name.c_str();
  terrace_queue* queue = nullptr;
  runtime.handle->share([&](terrace_runtime* r) { return make(r, &options, &queue); });
  return {hold<QueueHandle>("the queue", queue), of_caller};
}

/// Waits in slices, between which Python sees signals: Ctrl-C ends the wait.
void drain(Queue& queue, GivenReal timeout) {
  constexpr std::uint64_t slice = 50'000'000;
  std::uint64_t left = read_nanoseconds("timeout", timeout);
  for (;;) {
    const std::uint64_t now = std::min(left, slice);
    terrace_status status = TERRACE_OK;
    Failure failure;
    queue.handle->share([&](terrace_queue* q) {
      status = terrace_queue_drain(q, now);
      failure = failure_of(status);
      return TERRACE_OK;
    });
    left -= now;
    if (status != TERRACE_NOT_READY || left == 0) return raise_failure(failure);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void add_queue(nb::module_& module) {
  nb::class_<Queue>(module, "Queue", R"(The order in which the work of steps is done.

Made by Runtime.open_queue, wrap_caller or wrap_stream.)")
      .def("drain", &drain, "timeout"_a = 30.0,
           nb::sig("def drain(self, timeout: float = 30.0) -> None"),
           R"(Waits until all that was enqueued is done, or `timeout` seconds. Ctrl-C ends the
wait.

Raises NotReady: not in time, the work goes on; otherwise the error of the work.)")
      .def(
          "close", [](Queue& queue) { close_without_gil(*queue.handle); },
          "Closes the queue. Steps on it keep it until they are closed.");
}

using RuntimeClass = nb::class_<Runtime>;

terrace_memory_need need_of(Runtime& runtime, const terrace_need_query& query) {
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  runtime.handle->share(
      [&](terrace_runtime* r) { return terrace_runtime_memory_need(r, &query, &need); });
  return need;
}

nb::dict dict_of(const terrace_memory_need& need) {
  nb::dict found;
  found["device_held"] = need.device_held;
  found["device_cache"] = need.device_cache;
  found["device_step"] = need.device_step;
  found["device_shared"] = need.device_shared;
  found["host_rows"] = need.host_rows;
  found["host_index"] = need.host_index;
  found["host_rest"] = need.host_rest;
  found["index_bytes"] = need.index_bytes;
  return found;
}

void add_memory_need(RuntimeClass& cls) {
  cls.def(
      "memory_need",
      [](Runtime& runtime, GivenNumber tokens, GivenNumber step_tokens, GivenNumber prompt_tokens,
         GivenNumber draft_tokens, GivenNumber later_prompt_tokens, GivenNumber cache_sharers,
         GivenObject dtype) {
        terrace_need_query query = TERRACE_NEED_QUERY_INIT;
        query.tokens = read_number("tokens", tokens);
        query.step_tokens = read_number("step_tokens", step_tokens);
        query.prompt_tokens = read_number("prompt_tokens", prompt_tokens);
        query.draft_tokens = read_number("draft_tokens", draft_tokens);
        query.later_prompt_tokens = read_number("later_prompt_tokens", later_prompt_tokens);
        query.cache_sharers = read_number("cache_sharers", cache_sharers);
        query.dtype = read_dtype(dtype);
        return dict_of(need_of(runtime, query));
      },
      "tokens"_a, "step_tokens"_a = 1, nb::kw_only(), "prompt_tokens"_a = 0, "draft_tokens"_a = 1,
      "later_prompt_tokens"_a = 0, "cache_sharers"_a = 0, "dtype"_a = "f32",
      nb::sig("def memory_need(self, tokens: int, step_tokens: int = 1, *, prompt_tokens: int = 0, "
              "draft_tokens: int = 1, later_prompt_tokens: int = 0, cache_sharers: int = 0, "
              "dtype: str = 'f32') -> dict[str, int]"),
      R"(Returns the memory, in bytes, that one more sequence takes at most, for admission.

tokens: that it grows to. step_tokens: of a prompt's largest piece. prompt_tokens: of its first
prompt, 0 if not known. draft_tokens: of its largest draft. later_prompt_tokens: of its longest
later prompt. cache_sharers: sequences that share the cache, this one included; 0: the present
sharers and this one. dtype: of queries and outputs, as in begin_step.

Steps find room if device_held, device_cache and device_step of all sequences and the largest
device_shared fit into device.memory together: memory held while it decodes, its share of the cache,
memory of its step, memory that all sequences of a step share. host_rows, host_index and host_rest
count against host.memory, beside a region of pages of 64 MiB. index_bytes: indexes that a step
scans; counted in the other fields, too.

Raises InvalidArgument: no sequence gets that long.)");
}

void add_queries(RuntimeClass& cls) {
  cls.def("traits", &traits, nb::sig("def traits(self) -> dict[str, typing.Any]"),
          R"(Returns the runtime's traits (docs/embedding-c.md has the fields): its backend and
why it was chosen, the policies, their needs and their abilities.)")
      .def(
          "device_bytes",
          [](Runtime& runtime, GivenNumber tokens) {
            terrace_need_query query = TERRACE_NEED_QUERY_INIT;
            query.tokens = read_number("tokens", tokens);
            return need_of(runtime, query).device_held;
          },
          "tokens"_a, nb::sig("def device_bytes(self, tokens: int) -> int"),
          R"(Returns the device memory, in bytes, that one more sequence takes at most while it
decodes up to `tokens` tokens one by one: memory_need's device_held.

Raises InvalidArgument: no sequence gets that long.)")
      .def_prop_ro(
          "sequences",
          [](Runtime& runtime) {
            std::size_t count = 0;
            runtime.handle->share([&](terrace_runtime* r) {
              count = terrace_runtime_sequences(r);
              return TERRACE_OK;
            });
            return count;
          },
          "How many sequences exist, including those that only a step keeps.")
      .def_prop_ro("layers", [](const Runtime& runtime) { return runtime.shape.layers; })
      .def_prop_ro("query_heads", [](const Runtime& runtime) { return runtime.shape.query_heads; })
      .def_prop_ro("kv_heads", [](const Runtime& runtime) { return runtime.shape.kv_heads; })
      .def_prop_ro("head_dim", [](const Runtime& runtime) { return runtime.shape.head_dim; })
      .def_prop_ro("dtype", [](const Runtime& runtime) { return name_of(runtime.shape.dtype); });
}

void add_queue_makers(RuntimeClass& cls) {
  cls.def(
         "open_queue",
         [](Runtime& runtime, GivenText name) {
           return make_queue(runtime, name, false, &terrace_queue_open);
         },
         "name"_a = "compute", nb::sig("def open_queue(self, name: str = 'compute') -> Queue"),
         R"(Makes a queue of the backend. Its work runs on other threads: outputs are there
once Step.end or Queue.drain has returned.)")
      .def(
          "wrap_caller",
          [](Runtime& runtime, GivenText name) {
            return make_queue(runtime, name, true, &terrace_queue_wrap_caller);
          },
          "name"_a = "compute", nb::sig("def wrap_caller(self, name: str = 'compute') -> Queue"),
          R"(Makes a queue whose work is done when the call that enqueues it returns, on the
calling thread: backend host.)")
      .def(
          "wrap_stream",
          [](Runtime& runtime, GivenNumber given, GivenText name) {
            const std::size_t stream = read_number("stream", given);
            return make_queue(runtime, name, false,
                              [&](terrace_runtime* r, const terrace_queue_options* options,
                                  terrace_queue** queue) {
                                // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has a number
                                void* const pointer = reinterpret_cast<void*>(stream);
                                return terrace_queue_wrap_stream(r, pointer, options, queue);
                              });
          },
          "stream"_a, "name"_a = "compute",
          nb::sig("def wrap_stream(self, stream: int, name: str = 'compute') -> Queue"),
          R"(Makes a queue of a stream of CUDA: torch.cuda.current_stream().cuda_stream. The
stream must exist until the queue and all steps on it are closed, and must not be captured
meanwhile.)");
}

}  // namespace

void add_runtime(nb::module_& module) {
  add_queue(module);
  RuntimeClass cls(module, "Runtime", R"(The KV memory of one model.

config: a Config, or a mapping of keys to values. dtype: that of keys and values, f32, f16 or
bf16. softmax_scale: what a query times a key is multiplied by; 0: 1 / sqrt(head_dim). Methods may
be called from any thread, at once.

Raises InvalidArgument: settings or shape that do not fit, by name; Unsupported: a backend or
policy that does not exist; OutOfMemory.)");
  cls.def(
      "__init__",
      [](Runtime* self, const nb::object& config, GivenNumber layers, GivenNumber query_heads,
         GivenNumber kv_heads, GivenNumber head_dim, GivenObject dtype, GivenReal softmax_scale) {
        new (self) Runtime(open_runtime(
            config, {read_number("layers", layers), read_number("query_heads", query_heads),
                     read_number("kv_heads", kv_heads), read_number("head_dim", head_dim),
                     read_dtype(dtype),
                     static_cast<float>(read_real("softmax_scale", softmax_scale)), false}));
      },
      "config"_a = nb::none(), nb::kw_only(), "layers"_a, "query_heads"_a, "kv_heads"_a,
      "head_dim"_a, "dtype"_a = "f16", "softmax_scale"_a = 0.0,
      nb::sig(
          "def __init__(self, config: Config | collections.abc.Mapping[str, object] | None = None, "
          "*, layers: int, query_heads: int, kv_heads: int, head_dim: int, dtype: str = 'f16', "
          "softmax_scale: float = 0.0) -> None"));
  add_queries(cls);
  add_memory_need(cls);
  add_queue_makers(cls);
  cls.def(
      "close", [](Runtime& runtime) { close_without_gil(*runtime.handle); },
      R"(Closes the runtime. Calls that change its sequences and steps then raise
InvalidArgument; memory and threads are freed with the last of them.)");
}

}  // namespace terrace::python
