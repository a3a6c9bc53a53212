#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "objects.hpp"
#include "tensors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace terrace::python {
namespace {

// ---- Begin

using Tokens = std::optional<std::vector<std::size_t>>;

/// Keeps handles from being closed. In an order, so that no two threads wait for each other.
std::vector<std::shared_lock<std::shared_mutex>> lock_all(
    std::vector<std::shared_ptr<SequenceHandle>> handles) {
  std::sort(handles.begin(), handles.end());
  handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
  std::vector<std::shared_lock<std::shared_mutex>> locks;
  locks.reserve(handles.size());
  for (const auto& handle : handles) locks.push_back(handle->lock());
  return locks;
}

struct Members {
  std::vector<std::shared_ptr<SequenceHandle>> sequences;
  Tokens tokens;
  terrace_dtype dtype = TERRACE_DTYPE_F32;
};

/// Needs no GIL.
terrace_status begin(terrace_runtime* runtime, QueueHandle& queue, const Members& members,
                     terrace_step** step) {
  const auto locks = lock_all(members.sequences);
  const auto queue_lock = queue.lock();
  std::vector<terrace_sequence*> sequences;
  sequences.reserve(members.sequences.size());
  for (const auto& sequence : members.sequences) sequences.push_back(sequence->get());
  terrace_step_options options = TERRACE_STEP_OPTIONS_INIT;
  options.sequences = sequences.data();
  options.count = sequences.size();
  options.tokens = members.tokens ? members.tokens->data() : nullptr;
  options.compute = queue.get();
  options.dtype = members.dtype;
  return terrace_step_begin(runtime, &options, step);
}

Step begin_step(Runtime& runtime, const std::vector<Sequence*>& sequences, Queue& compute,
                const Tokens& tokens, const std::string& dtype) {
  if (tokens && tokens->size() != sequences.size()) {
    raise_invalid("tokens has " + std::to_string(tokens->size()) +
                  " numbers: give one for each of " + std::to_string(sequences.size()) +
                  " sequences");
  }
  Members members{{}, tokens, dtype_named(dtype)};
  for (const Sequence* sequence : sequences) {
    sequence->handle->check_process();
    members.sequences.push_back(sequence->handle);
  }
  terrace_step* begun = nullptr;
  runtime.handle->share(
      [&](terrace_runtime* r) { return begin(r, *compute.handle, members, &begun); });
  Step step{hold<StepHandle>("the step", begun), compute, runtime.shape};
  step.sequences = sequences.size();
  step.tokens = sequences.size();
  if (tokens) {
    step.tokens = 0;
    for (const std::size_t count : *tokens) step.tokens += count;
  }
  return step;
}

// ---- Tensors

/// Keeps arrays until the step has ended, unless work is done when the call that brings it returns.
void keep(Step& step, std::initializer_list<const Array*> arrays) {
  if (step.queue.of_caller) return;
  for (const Array* array : arrays) step.kept.push_back(*array);
}

/// The hints of a step's sequences as C wants them. Lives until the call has returned; the arrays
/// are kept by the step.
struct HintsOfStep {
  std::vector<terrace_prompt_hints> hints;
  std::vector<const terrace_prompt_hints*> pointers;
};

const float* read_hint(Step& step, const char* name, const std::optional<InputArray>& array,
                       std::size_t& count) {
  if (!array) return nullptr;
  if (array->dimensions == 0) raise_invalid(std::string(name) + " has no dimensions");
  const std::vector<std::size_t> shape(array->shape.begin(),
                                       array->shape.begin() + array->dimensions);
  check_packed({name, *array}, shape, nb::dtype<float>(), false);
  count = array->numbers();
  keep(step, {&*array});
  return static_cast<const float*>(array->data);
}

using GivenHints = std::optional<std::vector<std::optional<Hints>>>;

HintsOfStep read_hints(Step& step, const GivenHints& given) {
  HintsOfStep read;
  if (!given) return read;
  if (given->size() != step.sequences) {
    raise_invalid("hints: give one, or None, for each sequence");
  }
  read.hints.reserve(step.sequences);
  for (const std::optional<Hints>& hints : *given) {
    if (!hints) {
      read.pointers.push_back(nullptr);
      continue;
    }
    terrace_prompt_hints one = TERRACE_PROMPT_HINTS_INIT;
    one.pre_rope_keys =
        read_hint(step, "pre_rope_keys", hints->pre_rope_keys, one.pre_rope_key_count);
    one.query_window = read_hint(step, "query_window", hints->query_window, one.query_window_count);
    one.attention_scores =
        read_hint(step, "attention_scores", hints->attention_scores, one.attention_score_count);
    read.pointers.push_back(&read.hints.emplace_back(one));
  }
  return read;
}

/// Checks queries or outputs; returns from token to token, in numbers.
std::size_t check_queries(const Step& step, const Named& named, nb::dlpack::dtype dtype) {
  const Shape& shape = step.shape;
  const std::size_t wanted[] = {step.tokens, shape.query_heads, shape.head_dim};
  check_array(named, wanted, dtype, shape.on_cuda);
  if (stride_of(named, 1, shape.head_dim) != shape.head_dim) {
    raise_invalid(std::string(named.name) +
                  ": the heads of a token must lie one behind the other: "
                  "give a contiguous copy");
  }
  return stride_of(named, 0, shape.query_heads * shape.head_dim);
}

void check_rows(const Step& step, const Named& named) {
  const Shape& shape = step.shape;
  const std::size_t wanted[] = {step.tokens, shape.kv_heads, shape.head_dim};
  check_array(named, wanted, dlpack_dtype(shape.dtype), shape.on_cuda);
}

struct Rows {
  std::size_t token_stride = 0;  ///< bytes
  std::size_t head_stride = 0;
};

Rows strides_of(const Step& step, const Named& named) {
  const std::size_t size = step.shape.dtype == TERRACE_DTYPE_F32 ? 4 : 2;
  const std::size_t head = stride_of(named, 1, step.shape.head_dim);
  const std::size_t packed = std::max(head, step.shape.head_dim) * step.shape.kv_heads;
  return {stride_of(named, 0, packed) * size, head * size};
}

terrace_tensors read_rows(const Step& step, const InputArray& keys, const InputArray& values) {
  terrace_tensors tensors = TERRACE_TENSORS_INIT;
  const Named key_rows{"keys", keys};
  const Named value_rows{"values", values};
  check_rows(step, key_rows);
  check_rows(step, value_rows);
  const Rows of_keys = strides_of(step, key_rows);
  const Rows of_values = strides_of(step, value_rows);
  if (of_keys.token_stride != of_values.token_stride ||
      of_keys.head_stride != of_values.head_stride) {
    raise_invalid("keys and values lie in memory in different ways: give both contiguous");
  }
  tensors.keys = keys.data;
  tensors.values = values.data;
  tensors.kv_token_stride = of_keys.token_stride;
  tensors.kv_head_stride = of_keys.head_stride;
  return tensors;
}

void read_speculated_query(Step& step, const std::optional<InputArray>& given,
                           terrace_tensors& tensors) {
  if (!given) return;
  const Named named{"speculated_query", *given};
  const std::size_t stride = check_queries(step, named, nb::dtype<float>());
  tensors.speculated_query = static_cast<const float*>(given->data);
  tensors.speculated_query_stride = stride;
}

template <typename Call>
void enqueue(Step& step, Call&& call) {
  step.handle->use([&](terrace_step* s) {
    const std::lock_guard lock(*step.queue.enqueuing);
    return call(s);
  });
}

/// The arguments that attend and gather have in common.
struct LayerTensors {
  const InputArray& query;
  const InputArray& keys;
  const InputArray& values;
  const std::optional<InputArray>& speculated_query;
};

terrace_tensors read_layer(Step& step, const LayerTensors& given) {
  terrace_tensors tensors = read_rows(step, given.keys, given.values);
  const Named queries{"query", given.query};
  tensors.dtype = dtype_of(queries);
  tensors.query = given.query.data;
  tensors.query_stride = check_queries(step, queries, given.query.dtype);
  read_speculated_query(step, given.speculated_query, tensors);
  keep(step, {&given.query, &given.keys, &given.values});
  if (given.speculated_query) keep(step, {&*given.speculated_query});
  return tensors;
}

void attend(Step& step, std::uint32_t layer, const InputArray& query, const InputArray& keys,
            const InputArray& values, const OutputArray& output,
            const std::optional<InputArray>& speculated_query, const GivenHints& hints) {
  terrace_tensors tensors = read_layer(step, {query, keys, values, speculated_query});
  tensors.output = output.data;
  tensors.output_stride = check_queries(step, {"output", output}, query.dtype);
  keep(step, {&output});
  const HintsOfStep read = read_hints(step, hints);
  tensors.hints = read.pointers.empty() ? nullptr : read.pointers.data();
  enqueue(step, [&](terrace_step* s) { return terrace_step_attend(s, layer, &tensors); });
}

void append(Step& step, std::uint32_t layer, const InputArray& keys, const InputArray& values,
            const GivenHints& hints) {
  terrace_tensors tensors = read_rows(step, keys, values);
  keep(step, {&keys, &values});
  const HintsOfStep read = read_hints(step, hints);
  tensors.hints = read.pointers.empty() ? nullptr : read.pointers.data();
  enqueue(step, [&](terrace_step* s) { return terrace_step_append(s, layer, &tensors); });
}

/// Pointers become numbers: what a kernel written in Python is handed.
nb::dict read_view(const terrace_view& view) {
  nb::dict read;
  nb::list blocks;
  for (std::size_t i = 0; i * view.block_tokens < view.window_end; ++i) {
    blocks.append(reinterpret_cast<std::uintptr_t>(view.blocks[i]));
  }
  read["blocks"] = blocks;
  read["block_tokens"] = view.block_tokens;
  read["sinks"] = nb::make_tuple(view.sinks_begin, view.sinks_end);
  read["window"] = nb::make_tuple(view.window_begin, view.window_end);
  read["selected"] = reinterpret_cast<std::uintptr_t>(view.selected);
  read["selected_count"] = reinterpret_cast<std::uintptr_t>(view.selected_count);
  read["selected_stride"] = view.selected_stride;
  read["lists"] = view.lists;
  return read;
}

/// Returns how each sequence fares.
std::vector<Failure> read_failures(Step& step) {
  std::vector<Failure> read(step.sequences);
  step.handle->use([&](terrace_step* s) {
    for (std::size_t i = 0; i < read.size(); ++i) read[i] = failure_of(terrace_step_status(s, i));
    return TERRACE_OK;
  });
  return read;
}

nb::list gather(Step& step, std::uint32_t layer, const InputArray& query, const InputArray& keys,
                const InputArray& values, const std::optional<InputArray>& speculated_query,
                const GivenHints& hints) {
  terrace_tensors tensors = read_layer(step, {query, keys, values, speculated_query});
  const HintsOfStep read = read_hints(step, hints);
  tensors.hints = read.pointers.empty() ? nullptr : read.pointers.data();
  std::vector<terrace_view> views(step.sequences, terrace_view TERRACE_VIEW_INIT);
  std::vector<terrace_view*> pointers;
  pointers.reserve(views.size());
  for (terrace_view& view : views) pointers.push_back(&view);
  enqueue(step, [&](terrace_step* s) {
    return terrace_step_gather(s, layer, &tensors, pointers.data());
  });
  nb::list made;
  const std::vector<Failure> failed_ones = read_failures(step);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const bool failed = failed_ones[i].status != TERRACE_OK;
    made.append(failed ? nb::object(nb::none()) : nb::object(read_view(views[i])));
  }
  return made;
}

// ---- End

nb::dict failures(Step& step) {
  nb::dict failed;
  const std::vector<Failure> all = read_failures(step);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].status != TERRACE_OK) failed[nb::int_(i)] = exception_of(all[i]);
  }
  return failed;
}

void end(Step& step, const Tokens& accepted) {
  if (accepted && accepted->size() != step.sequences) {
    raise_invalid("accepted has " + std::to_string(accepted->size()) +
                  " numbers: give one for each of " + std::to_string(step.sequences) +
                  " sequences");
  }
  enqueue(step, [&](terrace_step* s) {
    return terrace_step_end(s, accepted ? accepted->data() : nullptr);
  });
  step.kept.clear();
  const nb::dict failed = failures(step);
  if (nb::len(failed) == 0) return;
  throw raised(nb::module_::import_("terrace.errors").attr("SequencesFailed")(failed));
}

void close(Step& step) {
  close_without_gil(*step.handle);
  step.kept.clear();
}

void add_hints(nb::module_& module) {
  nb::class_<Hints>(module, "Hints",
                    R"(The hints of one sequence's tokens that Sequence.needs asks for.

f32, packed, memory of the host: pre_rope_keys [tokens, kv_heads, head_dim], query_window
[positions, query_heads, head_dim], queries of a prompt's last positions after RoPE,
attention_scores [kv_heads, tokens], summed over the queries of a head's group.)")
      .def(
          "__init__",
          [](Hints* self, std::optional<InputArray> pre_rope_keys,
             std::optional<InputArray> query_window, std::optional<InputArray> attention_scores) {
            new (self) Hints{std::move(pre_rope_keys), std::move(query_window),
                             std::move(attention_scores)};
          },
          nb::kw_only(), "pre_rope_keys"_a = nb::none(), "query_window"_a = nb::none(),
          "attention_scores"_a = nb::none(),
          nb::sig(
              "def __init__(self, *, pre_rope_keys: typing.Any = None, query_window: typing.Any = "
              "None, attention_scores: typing.Any = None) -> None"));
}

void add_layers(nb::class_<Step>& cls) {
  cls.def("attend", &attend, "layer"_a, "query"_a, "keys"_a, "values"_a, "output"_a,
          "speculated_query"_a = nb::none(), "hints"_a = nb::none(),
          nb::sig("def attend(self, layer: int, query: typing.Any, keys: typing.Any, values: "
                  "typing.Any, "
                  "output: typing.Any, speculated_query: typing.Any = None, hints: "
                  "collections.abc.Sequence[Hints | None] | None = None) -> None"),
          R"(Appends a layer's rows, selects, fetches and attends. Layers come in order, from 0.

All tokens of the first sequence, then those of the second: query and output [tokens,
query_heads, head_dim] of f32, f16 or bf16, after RoPE; keys and values [tokens, kv_heads,
head_dim] of the KV dtype, with any strides from token to token and head to head. speculated_query
[tokens, query_heads, head_dim] f32, after RoPE, and hints, one or None a sequence, are wanted where
Sequence.needs says so.
Nothing is copied: tensors stay as they are until the step has ended, on a queue of wrap_caller
until the call returns.

Raises InvalidArgument: not the layer's turn, or a tensor that does not fit; then nothing is
enqueued. Failures of work that the sequences share come again with each later call.)")
      .def("append", &append, "layer"_a, "keys"_a, "values"_a, "hints"_a = nb::none(),
           nb::sig("def append(self, layer: int, keys: typing.Any, values: typing.Any, hints: "
                   "collections.abc.Sequence[Hints | None] | None = None) -> None"),
           R"(Appends a layer's rows alone, for an engine that has computed a prompt's attention: in
steps of pieces of announced prompts.

Raises as attend; InvalidArgument: tokens that decode, or of a prompt that selects
(retrieval.prompts); Unsupported: a retention policy, which goes by queries.)")
      .def("gather", &gather, "layer"_a, "query"_a, "keys"_a, "values"_a,
           "speculated_query"_a = nb::none(), "hints"_a = nb::none(),
           nb::sig("def gather(self, layer: int, query: typing.Any, keys: typing.Any, values: "
                   "typing.Any, "
                   "speculated_query: typing.Any = None, hints: "
                   "collections.abc.Sequence[Hints | None] | None = None) "
                   "-> list[dict[str, typing.Any] | None]"),
           R"(The same without attention, for an engine with a kernel of its own, one token a
sequence.

Returns what each sequence attends to, None for one that has failed: blocks (addresses of blocks
of sinks and window), block_tokens, sinks and window (positions [begin, end)), selected (address
of [lists, selected_stride] addresses of rows), selected_count (address of [lists]),
selected_stride, lists. terrace.h says how rows lie. They are read by work on the queue before
the step's next call.

Raises Unsupported: the policy needs a logit bias or estimates (wave: set wave.estimated_share
to 0).)");
}

void add_end(nb::class_<Step>& cls) {
  cls.def("end", &end, "accepted"_a = nb::none(),
          R"(Ends the step: each sequence that has not failed gets longer by its tokens, or by
accepted[i] of them. Waits until rows are on the host and compute is done.

Raises SequencesFailed: some sequences are as before, and `failures` says why of each; the
others have ended well. InvalidArgument: not all layers were attended to, or more accepted than
there are: the step goes on. Others: the step has been given up.)")
      .def_prop_ro("failures", &failures,
                   nb::sig("def failures(self) -> dict[int, terrace.errors.Error]"),
                   "What has failed so far, by the sequence's place in the step.")
      .def("close", &close,
           "Closes the step. One that has not ended is given up: no sequence gets longer.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Step"))
      .def(
          "__exit__", [](Step& step, const nb::args&) { close(step); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
}

}  // namespace

void add_step(nb::module_& module) {
  add_hints(module);
  nb::class_<Step> cls(module, "Step", R"(One pass of a batch of sequences through all layers.

Made by Runtime.begin_step. As a context manager it closes at the end of the block.)");
  add_layers(cls);
  add_end(cls);
  nb::borrow<nb::class_<Runtime>>(nb::type<Runtime>())
      .def("begin_step", &begin_step, "sequences"_a, "compute"_a, "tokens"_a = nb::none(),
           "dtype"_a = "f32",
           R"(Begins a step of all these sequences, on a queue, with tokens[i] of each, or one.

dtype: that of queries and outputs that its layers will bring, f32, f16 or bf16. Room to convert
them is made now, where rows still give way; a layer that brings another type fails where there is
none.

Several tokens are a piece of a prompt that was announced, or a draft that is decoded token by
token. A sequence that cannot begin takes no part: Step.failures says why. Until the step has
ended, nothing but length, phase and needs may be asked of the sequences.

Raises InvalidArgument: no sequences, a sequence or queue of another runtime, or another dtype.)");
}

}  // namespace terrace::python
