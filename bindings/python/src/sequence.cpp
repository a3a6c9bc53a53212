#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <condition_variable>
#include <thread>

#include "gil.hpp"
#include "objects.hpp"
#include "tensors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace terrace::python {
namespace {

Sequence fork(Sequence& sequence) {
  terrace_sequence* twin = nullptr;
  sequence.handle->use([&](terrace_sequence* s) { return terrace_sequence_fork(s, &twin); });
  return {hold<SequenceHandle>("the sequence", twin), sequence.shape};
}

std::size_t length(Sequence& sequence) {
  std::size_t tokens = 0;
  sequence.handle->use([&](terrace_sequence* s) {
    tokens = terrace_sequence_length(s);
    return TERRACE_OK;
  });
  return tokens;
}

std::size_t readable_tokens(Sequence& sequence) {
  std::size_t tokens = 0;
  sequence.handle->use([&](terrace_sequence* s) {
    tokens = terrace_sequence_readable_tokens(s);
    return TERRACE_OK;
  });
  return tokens;
}

const char* phase(Sequence& sequence) {
  if (sequence.handle->closed()) return "closed";
  terrace_phase phase = TERRACE_PHASE_IDLE;
  sequence.handle->use([&](terrace_sequence* s) {
    phase = terrace_sequence_phase(s);
    return TERRACE_OK;
  });
  switch (phase) {
    case TERRACE_PHASE_IDLE:
      return "idle";
    case TERRACE_PHASE_STEP:
      return "step";
    case TERRACE_PHASE_PAUSED:
      return "paused";
    case TERRACE_PHASE_LOST:
      return "lost";
  }
  return "lost";
}

nb::dict needs(Sequence& sequence) {
  terrace_needs needs = TERRACE_NEEDS_INIT;
  sequence.handle->use([&](terrace_sequence* s) { return terrace_sequence_needs(s, &needs); });
  nb::dict found;
  found["query_window_tokens"] = needs.query_window_tokens;
  found["pre_rope_keys"] = needs.pre_rope_keys != 0;
  found["attention_scores"] = needs.attention_scores != 0;
  found["speculated_query"] = needs.speculated_query != 0;
  return found;
}

nb::object counters(Sequence& sequence) {
  return json_of(*sequence.handle, &terrace_sequence_counters);
}

/// The wait is the library's, up to the setting `deadline`, on a thread of its own: this one looks
/// for signals. A wait that Ctrl-C interrupts continues in its thread until it ends, and keeps the
/// handle until then.
void await_indexes(Sequence& sequence) {
  struct Wait {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    Failure failure;
  };
  const auto wait = std::make_shared<Wait>();
  std::thread([wait, handle = sequence.handle] {
    Failure failure = handle->call_alone(&terrace_sequence_await_indexes);
    const std::lock_guard lock(wait->mutex);
    wait->failure = std::move(failure);
    wait->done = true;
    wait->ended.notify_one();
  }).detach();
  for (bool done = false; !done;) {
    {
      const WithoutGil released;
      std::unique_lock lock(wait->mutex);
      done = wait->ended.wait_for(lock, std::chrono::milliseconds(20), [&] { return wait->done; });
    }
    if (!done && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  raise_failure(wait->failure);
}

bool index_ready(Sequence& sequence) {
  int ready = 0;
  sequence.handle->use([&](terrace_sequence* s) {
    ready = terrace_sequence_index_ready(s);
    return TERRACE_OK;
  });
  return ready != 0;
}

void read_rows(Sequence& sequence, GivenNumber layer, GivenNumber kv_head,
               GivenNumbers given_positions, GivenArray given_target) {
  const std::uint32_t layer_number = read_index("layer", layer);
  const std::uint32_t head = read_index("kv_head", kv_head);
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
  const std::vector<std::size_t> numbers = read_numbers("positions", given_positions, most);
  const std::vector<std::uint32_t> positions(numbers.begin(), numbers.end());
  const Array target = read_output("target", given_target);
  const std::size_t shape[] = {positions.size(), 2, sequence.shape.head_dim};
  check_packed({"target", target}, shape, dlpack_dtype(sequence.shape.dtype), false);
  sequence.handle->use([&](terrace_sequence* s) {
    return terrace_sequence_read_rows(s, layer_number, head, positions.data(), positions.size(),
                                      target.data, target.bytes());
  });
}

using SequenceClass = nb::class_<Sequence>;

/// Makes a method of a function of the C interface that takes nothing else.
template <terrace_status (*function)(terrace_sequence*)>
void run(Sequence& sequence) {
  sequence.handle->use(function);
}

void add_queries(SequenceClass& cls) {
  cls.def("__len__", &length, "Returns how many tokens it has: a step's are added when it ends.")
      .def_prop_ro(
          "readable_tokens", &readable_tokens,
          R"(How many tokens have rows that can be read, from the first one on: all of them, unless
the store below host memory could not give rows back. Truncate to so many, and give the
rest again.)")
      .def_prop_ro("phase", &phase, "idle, step (in one that is open), paused, lost or closed.")
      .def("needs", &needs, nb::sig("def needs(self) -> dict[str, int | bool]"),
           R"(Returns the hints that policies need of its steps, besides queries, keys and values:
query_window_tokens, pre_rope_keys, attention_scores (see Hints), speculated_query.)")
      .def("counters", &counters, nb::sig("def counters(self) -> dict[str, typing.Any]"),
           "Returns counts of its work and moved bytes (docs/embedding-c.md has the fields).")
      .def("index_ready", &index_ready, "Returns whether the next step would wait for no index.")
      .def("await_indexes", &await_indexes,
           R"(Waits until indexes are built, up to the setting `deadline`. Ctrl-C ends the wait.

Raises NotReady: not in time; otherwise the error of building, which is tried again.)")
      .def("read_rows", &read_rows, "layer"_a, "kv_head"_a, "positions"_a, "target"_a,
           nb::sig("def read_rows(self, layer: int, kv_head: int, positions: "
                   "collections.abc.Sequence[int], target: typing.Any) -> None"),
           R"(Copies rows of a KV head, from whichever tier has them, into `target`: packed host
memory, [positions, 2, head_dim] of the KV dtype, key, then value.

Raises InvalidArgument: not idle, no such layer, head or position; then nothing was read.)");
}

void add_changes(SequenceClass& cls) {
  cls.def(
         "begin_prompt",
         [](Sequence& sequence, GivenNumber tokens) {
           const std::size_t count = read_number("tokens", tokens);
           sequence.handle->use(
               [&](terrace_sequence* s) { return terrace_sequence_begin_prompt(s, count); });
         },
         "tokens"_a, nb::sig("def begin_prompt(self, tokens: int) -> None"),
         R"(Announces that the next tokens are a prompt, or more of one, that comes in steps of
any size: they attend exactly, and are indexed after the last one. 0 ends a prompt early.)")
      .def(
          "truncate",
          [](Sequence& sequence, GivenNumber length) {
            const std::size_t tokens = read_number("length", length);
            sequence.handle->use(
                [&](terrace_sequence* s) { return terrace_sequence_truncate(s, tokens); });
          },
          "length"_a, nb::sig("def truncate(self, length: int) -> None"),
          "Takes the tokens from `length` on back, and ends a prompt.")
      .def("fork", &fork, "Returns a sequence with the same tokens. Memory of the host is shared.")
      .def("pause", &run<&terrace_sequence_pause>,
           R"(Gives up all device memory until resume.

Raises Unsupported for a policy that has no copy on the host (full).)")
      .def("resume", &run<&terrace_sequence_resume>, "Brings back what a step needs.")
      .def(
          "close", [](Sequence& sequence) { close_without_gil(*sequence.handle); },
          "Gives its memory back: at once, or when the step that it is in has been closed.");
}

}  // namespace

void add_sequence(nb::module_& module) {
  SequenceClass cls(module, "Sequence", R"(The keys and values of one sequence of tokens.

Made by Runtime.open_sequence, or fork. While it is in an open step, only its length, phase and
needs may be read, and it may be closed.)");
  add_queries(cls);
  add_changes(cls);
}

}  // namespace terrace::python
