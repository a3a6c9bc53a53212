#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <numeric>
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

/// Reads a number of tokens for each sequence; None gives an empty list.
Tokens read_tokens(std::string_view name, GivenNumbers given, std::size_t sequences) {
  if (given.object.is_none()) return std::nullopt;
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
  Tokens tokens = read_numbers(name, given, most);
  if (tokens->size() == sequences) return tokens;
  raise_invalid(std::string(name) + " has " + std::to_string(tokens->size()) +
                " numbers: give one for each of " + std::to_string(sequences) + " sequences");
}

/// Returns what the sequences hold: nobody else may hold the Sequences that a generator makes.
std::vector<std::shared_ptr<SequenceHandle>> read_sequences(GivenObject given) {
  std::vector<std::shared_ptr<SequenceHandle>> sequences;
  for (const nb::handle one : read_list("sequences", given.object, "a list of Sequences")) {
    const std::string name = named("sequences", sequences.size());
    sequences.push_back(read_object<Sequence>(name, one, "a Sequence").handle);
    sequences.back()->check_process();
  }
  if (sequences.empty()) raise_invalid("sequences has no member: give one Sequence or more");
  return sequences;
}

Step begin_step(Runtime& runtime, GivenObject given_sequences, GivenObject given_compute,
                GivenNumbers given, GivenObject dtype) {
  Members members;
  members.sequences = read_sequences(given_sequences);
  const Queue& compute = read_object<Queue>("compute", given_compute.object, "a Queue");
  members.tokens = read_tokens("tokens", given, members.sequences.size());
  members.dtype = read_dtype(dtype);
  terrace_step* begun = nullptr;
  runtime.handle->share(
      [&](terrace_runtime* r) { return begin(r, *compute.handle, members, &begun); });
  Step step{.handle = hold<StepHandle>("the step", begun),
            .queue = compute,
            .shape = runtime.shape,
            .tokens = members.sequences.size(),
            .sequences = members.sequences.size()};
  if (members.tokens) {
    step.tokens = std::accumulate(members.tokens->begin(), members.tokens->end(), std::size_t{0});
  }
  return step;
}

// ---- Tensors

/// Keeps arrays until the step has ended, unless work is done when the call that brings it returns.
void keep(Step& step, std::initializer_list<const Array*> arrays) {
  if (step.queue.of_caller) return;
  for (const Array* array : arrays) step.kept.push_back(*array);
}

/// The hints of a step's sequences as C wants them. Lives until the call has returned, and holds
/// the Hints as long: nobody else may hold those that a generator makes. Where work is done later,
/// the step keeps their arrays.
struct HintsOfStep {
  nb::list given;
  std::vector<terrace_prompt_hints> hints;
  std::vector<const terrace_prompt_hints*> pointers;
};

/// A hint's shape; the dimension that counts tokens may have any size.
struct HintShape {
  std::string_view name;
  std::vector<std::size_t> sizes;
  std::size_t free = 0;
};

const float* read_hint(Step& step, HintShape shape, const std::optional<Array>& array,
                       std::size_t& count) {
  if (!array) return nullptr;
  const bool has_free = array->dimensions > shape.free;
  shape.sizes[shape.free] = has_free ? static_cast<std::size_t>(array->shape[shape.free]) : 0;
  check_packed({shape.name, *array}, shape.sizes, nb::dtype<float>(), false);
  count = array->numbers();
  keep(step, {&*array});
  return static_cast<const float*>(array->data);
}

terrace_prompt_hints read_hints_of_one(Step& step, const Hints& hints) {
  const Shape& shape = step.shape;
  terrace_prompt_hints read = TERRACE_PROMPT_HINTS_INIT;
  read.pre_rope_keys = read_hint(step, {"pre_rope_keys", {0, shape.kv_heads, shape.head_dim}, 0},
                                 hints.pre_rope_keys, read.pre_rope_key_count);
  read.query_window = read_hint(step, {"query_window", {0, shape.query_heads, shape.head_dim}, 0},
                                hints.query_window, read.query_window_count);
  read.attention_scores = read_hint(step, {"attention_scores", {shape.kv_heads, 0}, 1},
                                    hints.attention_scores, read.attention_score_count);
  return read;
}

HintsOfStep read_hints(Step& step, GivenObject given) {
  HintsOfStep read;
  if (given.object.is_none()) return read;
  read.given = read_list("hints", given.object, "a list of Hints, or None");
  if (nb::len(read.given) != step.sequences) {
    raise_invalid("hints has " + std::to_string(nb::len(read.given)) +
                  " entries: give one, or None, for "
                  "each of " +
                  std::to_string(step.sequences) + " sequences");
  }
  read.hints.reserve(step.sequences);
  for (const nb::handle one : read.given) {
    if (one.is_none()) {
      read.pointers.push_back(nullptr);
      continue;
    }
    const std::string name = named("hints", read.pointers.size());
    const Hints& hints = read_object<Hints>(name, one, "Hints, or None");
    read.pointers.push_back(&read.hints.emplace_back(read_hints_of_one(step, hints)));
  }
  return read;
}

/// Checks queries or outputs; returns from token to token, in numbers.
std::size_t check_queries(const Step& step, const Named& named, nb::dlpack::dtype dtype) {
  const Shape& shape = step.shape;
  const std::size_t wanted[] = {step.tokens, shape.query_heads, shape.head_dim};
  check_array(named, wanted, dtype, shape.on_cuda);
  if (stride_of(named, 1, shape.head_dim, shape.head_dim) != shape.head_dim) {
    raise_invalid(std::string(named.name) +
                  " has gaps between the heads of a token: give a contiguous copy");
  }
  const std::size_t numbers = shape.query_heads * shape.head_dim;
  return stride_of(named, 0, numbers, numbers);
}

/// Bytes from token to token, and from head to head.
struct RowStrides {
  std::size_t token = 0;
  std::size_t head = 0;

  bool operator==(const RowStrides&) const = default;
};

/// Checks keys or values.
RowStrides check_rows(const Step& step, const Named& named) {
  const Shape& shape = step.shape;
  const std::size_t wanted[] = {step.tokens, shape.kv_heads, shape.head_dim};
  check_array(named, wanted, dlpack_dtype(shape.dtype), shape.on_cuda);
  const std::size_t size = shape.dtype == TERRACE_DTYPE_F32 ? 4 : 2;
  const std::size_t head = stride_of(named, 1, shape.head_dim, shape.head_dim);
  const std::size_t packed = std::max(head, shape.head_dim) * shape.kv_heads;
  return {stride_of(named, 0, shape.head_dim, packed) * size, head * size};
}

/// The arrays of a layer, as they were given.
struct GivenLayer {
  GivenArray query;
  GivenArray keys;
  GivenArray values;
  GivenArray speculated_query;
};

/// The same, read. Queries may be missing.
struct Layer {
  std::optional<Array> query;
  Array keys;
  Array values;
  std::optional<Array> speculated_query;
  std::optional<Array> output;
  terrace_tensors tensors = TERRACE_TENSORS_INIT;

  /// Keeps what the step's work reads and writes.
  void keep_for(Step& step) const {
    keep(step, {&keys, &values});
    for (const auto* array : {&query, &speculated_query, &output}) {
      if (*array) keep(step, {&**array});
    }
  }
};

Layer read_rows(const Step& step, GivenArray keys, GivenArray values) {
  Layer layer;
  layer.keys = read_input("keys", keys);
  layer.values = read_input("values", values);
  const RowStrides of_keys = check_rows(step, {"keys", layer.keys});
  if (of_keys != check_rows(step, {"values", layer.values})) {
    raise_invalid("keys and values lie in memory in different ways: give both contiguous");
  }
  layer.tensors.keys = layer.keys.data;
  layer.tensors.values = layer.values.data;
  layer.tensors.kv_token_stride = of_keys.token;
  layer.tensors.kv_head_stride = of_keys.head;
  return layer;
}

template <typename Call>
void enqueue(Step& step, Call&& call) {
  step.handle->use([&](terrace_step* s) {
    const std::lock_guard lock(*step.queue.enqueuing);
    return call(s);
  });
}

Layer read_layer(const Step& step, const GivenLayer& given) {
  Layer layer = read_rows(step, given.keys, given.values);
  layer.query = read_input("query", given.query);
  const Named queries{"query", *layer.query};
  layer.tensors.dtype = dtype_of(queries);
  layer.tensors.query = layer.query->data;
  layer.tensors.query_stride = check_queries(step, queries, layer.query->dtype);
  if (given.speculated_query.object.is_none()) return layer;
  layer.speculated_query = read_input("speculated_query", given.speculated_query);
  const Named speculated{"speculated_query", *layer.speculated_query};
  layer.tensors.speculated_query_stride = check_queries(step, speculated, nb::dtype<float>());
  layer.tensors.speculated_query = static_cast<const float*>(layer.speculated_query->data);
  return layer;
}

/// An output must not share memory with a layer's inputs, because these must stay unchanged until
/// the step has ended.
void read_output_of(const Step& step, Layer& layer, GivenArray given) {
  layer.output = read_output("output", given);
  const Named output{"output", *layer.output};
  layer.tensors.output = layer.output->data;
  layer.tensors.output_stride = check_queries(step, output, layer.query->dtype);
  check_apart(output, {"query", *layer.query});
  check_apart(output, {"keys", layer.keys});
  check_apart(output, {"values", layer.values});
  if (layer.speculated_query) check_apart(output, {"speculated_query", *layer.speculated_query});
}

void attend(Step& step, GivenNumber layer_number, GivenArray query, GivenArray keys,
            GivenArray values, GivenArray output, GivenArray speculated_query, GivenObject hints) {
  const std::uint32_t number = read_index("layer", layer_number);
  Layer layer = read_layer(step, {query, keys, values, speculated_query});
  read_output_of(step, layer, output);
  const HintsOfStep read = read_hints(step, hints);
  layer.tensors.hints = read.pointers.empty() ? nullptr : read.pointers.data();
  layer.keep_for(step);
  enqueue(step, [&](terrace_step* s) { return terrace_step_attend(s, number, &layer.tensors); });
}

void append(Step& step, GivenNumber layer_number, GivenArray keys, GivenArray values,
            GivenObject hints) {
  const std::uint32_t number = read_index("layer", layer_number);
  Layer layer = read_rows(step, keys, values);
  const HintsOfStep read = read_hints(step, hints);
  layer.tensors.hints = read.pointers.empty() ? nullptr : read.pointers.data();
  layer.keep_for(step);
  enqueue(step, [&](terrace_step* s) { return terrace_step_append(s, number, &layer.tensors); });
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

nb::list gather(Step& step, GivenNumber layer_number, GivenArray query, GivenArray keys,
                GivenArray values, GivenArray speculated_query, GivenObject hints) {
  const std::uint32_t number = read_index("layer", layer_number);
  Layer layer = read_layer(step, {query, keys, values, speculated_query});
  const HintsOfStep read = read_hints(step, hints);
  layer.tensors.hints = read.pointers.empty() ? nullptr : read.pointers.data();
  layer.keep_for(step);
  std::vector<terrace_view> views(step.sequences, terrace_view TERRACE_VIEW_INIT);
  std::vector<terrace_view*> pointers;
  pointers.reserve(views.size());
  for (terrace_view& view : views) pointers.push_back(&view);
  enqueue(step, [&](terrace_step* s) {
    return terrace_step_gather(s, number, &layer.tensors, pointers.data());
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

void end(Step& step, GivenNumbers given) {
  const Tokens accepted = read_tokens("accepted", given, step.sequences);
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

std::optional<Array> read_optional(std::string_view name, GivenArray given) {
  if (given.object.is_none()) return std::nullopt;
  return read_input(name, given);
}

void add_hints(nb::module_& module) {
  nb::class_<Hints>(module, "Hints",
                    R"(The hints of one sequence's tokens that Sequence.needs asks for.

f32, packed, memory of the host: pre_rope_keys [tokens, kv_heads, head_dim], query_window
[positions, query_heads, head_dim], queries of a prompt's last positions after RoPE,
attention_scores [kv_heads, tokens], summed over the queries of a head's group.)")
      .def(
          "__init__",
          [](Hints* self, GivenArray pre_rope_keys, GivenArray query_window,
             GivenArray attention_scores) {
            new (self) Hints{read_optional("pre_rope_keys", pre_rope_keys),
                             read_optional("query_window", query_window),
                             read_optional("attention_scores", attention_scores)};
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
[tokens, query_heads, head_dim] f32, after RoPE, and hints, one or None a sequence, are required if
Sequence.needs says so.
Nothing is copied: tensors must stay unchanged until the step has ended, on a queue of wrap_caller
until the call returns.

Raises InvalidArgument: not the layer's turn, or a tensor that does not fit; then nothing is
enqueued. Failures of work that the sequences share are raised again by each later call.)")
      .def("append", &append, "layer"_a, "keys"_a, "values"_a, "hints"_a = nb::none(),
           nb::sig("def append(self, layer: int, keys: typing.Any, values: typing.Any, hints: "
                   "collections.abc.Sequence[Hints | None] | None = None) -> None"),
           R"(Appends a layer's rows alone, for an engine that has computed a prompt's attention: in
steps of pieces of announced prompts.

Raises as attend; InvalidArgument: tokens that decode, or of a prompt that selects
(retrieval.prompts); Unsupported: a retention policy, because it needs queries.)")
      .def("gather", &gather, "layer"_a, "query"_a, "keys"_a, "values"_a,
           "speculated_query"_a = nb::none(), "hints"_a = nb::none(),
           nb::sig("def gather(self, layer: int, query: typing.Any, keys: typing.Any, values: "
                   "typing.Any, "
                   "speculated_query: typing.Any = None, hints: "
                   "collections.abc.Sequence[Hints | None] | None = None) "
                   "-> list[dict[str, typing.Any] | None]"),
           R"(As attend, without attention, for an engine with a kernel of its own, one token a
sequence.

Returns the rows that each sequence attends to, None for a failed one: blocks (addresses of blocks
of sinks and window), block_tokens, sinks and window (positions [begin, end)), selected (address
of [lists, selected_stride] addresses of rows), selected_count (address of [lists]),
selected_stride, lists. terrace.h says how rows lie. They are read by work on the queue before
the step's next call.

Raises Unsupported: the policy needs a logit bias or estimates (wave: set wave.estimated_share
to 0).)");
}

void add_end(nb::class_<Step>& cls) {
  cls.def("end", &end, "accepted"_a = nb::none(),
          nb::sig("def end(self, accepted: collections.abc.Sequence[int] | None = None) -> None"),
          R"(Ends the step: each sequence that has not failed gets longer by its tokens, or by
accepted[i] of them. Waits until rows are on the host and compute is done.

Raises SequencesFailed: some sequences are as before, and `failures` has the reason of each; the
others have ended well. InvalidArgument: not all layers were attended to, or accepted[i] is too
large: the step goes on. Other errors: the step is abandoned.)")
      .def_prop_ro("failures", &failures,
                   nb::sig("def failures(self) -> dict[int, terrace.errors.Error]"),
                   "The failures so far, by the sequence's place in the step.")
      .def("close", &close,
           "Closes the step. A step that has not ended is abandoned: no sequence gets longer.")
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
           nb::sig("def begin_step(self, sequences: collections.abc.Sequence[Sequence], compute: "
                   "Queue, tokens: collections.abc.Sequence[int] | None = None, dtype: str = "
                   "'f32') -> Step"),
           R"(Begins a step of all these sequences, on a queue, with tokens[i] of each, or one.

dtype: that of queries and outputs that its layers will bring, f32, f16 or bf16. Room to convert
them is made now, while rows can still be evicted; a layer that brings another type fails if there
is no room.

Several tokens are a piece of a prompt that was announced, or a draft that is decoded token by
token. A sequence that cannot begin takes no part: Step.failures says why. Until the step has
ended, only length, phase and needs of the sequences may be read.

Raises InvalidArgument: no sequences, a sequence or queue of another runtime, or another dtype.)");
}

}  // namespace terrace::python
