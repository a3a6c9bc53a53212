// The classes that the module gives Python. Each holds handles of the C interface by shared
// ownership: a step keeps its queue and its sequences also where Python has dropped them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "array.hpp"
#include "handle.hpp"
#include "terrace.h"

namespace terrace::python {

using ConfigHandle = Handle<terrace_config, terrace_config_close>;
using RuntimeHandle = Handle<terrace_runtime, terrace_runtime_close>;
using QueueHandle = Handle<terrace_queue, terrace_queue_close>;
using SequenceHandle = Handle<terrace_sequence, terrace_sequence_close>;
using StepHandle = Handle<terrace_step, terrace_step_close>;

struct Config {
  std::shared_ptr<ConfigHandle> handle;
};

/// A model's shape, and where its tensors lie.
struct Shape {
  std::size_t layers = 0;
  std::size_t query_heads = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  terrace_dtype dtype = TERRACE_DTYPE_F16;
  float softmax_scale = 0;
  bool on_cuda = false;
};

struct Runtime {
  std::shared_ptr<RuntimeHandle> handle;
  Shape shape;
};

struct Queue {
  std::shared_ptr<QueueHandle> handle;
  /// Work is done when the call that enqueues it returns: tensors need not be kept.
  bool of_caller = false;
  /// Steps on one queue enqueue one after the other.
  std::shared_ptr<std::mutex> enqueuing = std::make_shared<std::mutex>();
};

struct Sequence {
  std::shared_ptr<SequenceHandle> handle;
  Shape shape;
};

struct Step {
  /// Tensors of work that is enqueued. The first member, so that a step that is dropped gives them
  /// up after its handle, which waits for that work.
  std::vector<Array> kept;
  std::shared_ptr<StepHandle> handle;
  Queue queue;
  Shape shape;
  std::size_t tokens = 0;  ///< of all sequences
  std::size_t sequences = 0;
};

/// Hints of one sequence's tokens.
struct Hints {
  std::optional<Array> pre_rope_keys;
  std::optional<Array> query_window;
  std::optional<Array> attention_scores;
};

void add_config(nanobind::module_& module);
void add_runtime(nanobind::module_& module);
void add_sequence(nanobind::module_& module);
void add_prefix(nanobind::module_& module);
void add_step(nanobind::module_& module);

/// Makes settings of None, a Config or a mapping of names to values.
[[nodiscard]] Config config_of(const nanobind::object& given);

[[nodiscard]] nanobind::object parsed_json(const std::string& text);

/// Returns the JSON that a function of the C interface gives of a handle.
template <typename H, typename Function>
nanobind::object json_of(H& handle, Function&& function) {
  std::string json;
  handle.use([&](auto* pointer) {
    const char* text = nullptr;
    const terrace_status status = function(pointer, &text);
    if (status == TERRACE_OK) json = text;
    return status;
  });
  return parsed_json(json);
}

}  // namespace terrace::python
