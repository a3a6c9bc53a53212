#include "terrace/runtime/step.hpp"

#include "handles.hpp"
#include "sized_struct.hpp"
#include "tensors.hpp"
#include "values.hpp"

namespace terrace::bindings {
namespace {

Result<terrace_step_options> read_step_options(const terrace_step_options* given) {
  TERRACE_ASSIGN(
      const terrace_step_options options,
      read_struct<terrace_step_options>(given, TERRACE_STEP_OPTIONS_INIT,
                                        offsetof(terrace_step_options, dtype), "members"));
  TERRACE_TRY(check_reserved(options.reserved, "members"));
  TERRACE_TRY(check_given(options.compute, "terrace_step_begin", "members.compute"));
  TERRACE_TRY(check_given(options.sequences, "terrace_step_begin", "members.sequences"));
  if (options.count > 0) return options;
  return fail(Errc::invalid_argument, "terrace_step_begin: a step of no sequences");
}

/// Takes the sequences into the step, which keeps them. Returns them as the runtime's members.
Result<std::vector<StepMember>> take_members(const terrace_step_options& options,
                                             terrace_step& step) {
  std::vector<StepMember> members;
  for (std::size_t i = 0; i < options.count; ++i) {
    if (options.sequences[i] == nullptr) {
      return fail(Errc::invalid_argument, "terrace_step_begin: sequence {} is NULL or closed", i);
    }
    step.sequences.push_back(options.sequences[i]->shared);
    members.push_back({.sequence = step.sequences.back()->sequence.get(),
                       .tokens = options.tokens == nullptr ? 1 : options.tokens[i]});
  }
  return members;
}

/// Runs `work` on a step whose runtime is open. The step's own calls check everything else.
template <typename Work>
terrace_status on_step(std::string_view call, terrace_step* step, Work work) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(step, call, "step"));
    TERRACE_TRY(step->runtime->check_open(call, "the step"));
    return work(*step->step);
  });
}

/// Hands a layer's tensors and hints to one of the step's calls.
terrace_status enqueue_layer(std::string_view call, terrace_step* step, std::uint32_t layer,
                             const terrace_tensors* tensors,
                             Status (Step::*enqueue)(LayerId, const StepTensors&)) {
  return on_step(call, step, [=](Step& of) -> Status {
    TERRACE_ASSIGN(auto given, read_tensors(tensors, of.sequences()));
    given.tensors.hints = given.hints;
    return (of.*enqueue)(LayerId{layer}, given.tensors);
  });
}

/// Work on the compute queue may outlast a sequence that cannot be quiesced, so the queue must
/// stay.
void keep_queue_for_lost(terrace_step& step) {
  for (const auto& one : step.sequences) {
    if (one->sequence->phase() == SequencePhase::lost) one->compute = step.compute;
  }
}

}  // namespace
}  // namespace terrace::bindings

using namespace terrace;
using bindings::check_given;
using bindings::enqueue_layer;
using bindings::guarded;
using bindings::on_step;

terrace_status terrace_step_begin(terrace_runtime* runtime, const terrace_step_options* options,
                                  terrace_step** step) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(step, "terrace_step_begin", "step"));
    *step = nullptr;
    TERRACE_TRY(check_given(runtime, "terrace_step_begin", "runtime"));
    TERRACE_ASSIGN(const terrace_step_options read, bindings::read_step_options(options));
    if (read.compute->shared->runtime != runtime->shared) {
      return fail(Errc::invalid_argument, "terrace_step_begin: the queue is of another runtime");
    }
    TERRACE_ASSIGN(const Dtype queries, bindings::dtype_of(read.dtype, "members.dtype"));
    auto begun = std::make_unique<terrace_step>();
    begun->runtime = runtime->shared;
    begun->compute = read.compute->shared;
    TERRACE_ASSIGN(const auto members, bindings::take_members(read, *begun));
    TERRACE_ASSIGN(begun->step, runtime->shared->runtime->begin_step(
                                    members, *begun->compute->queue, {.queries = queries}));
    *step = begun.release();
    return {};
  });
}

terrace_status terrace_step_attend(terrace_step* step, uint32_t layer,
                                   const terrace_tensors* tensors) {
  return enqueue_layer("terrace_step_attend", step, layer, tensors, &Step::attend);
}

terrace_status terrace_step_append(terrace_step* step, uint32_t layer,
                                   const terrace_tensors* tensors) {
  return enqueue_layer("terrace_step_append", step, layer, tensors, &Step::append);
}

terrace_status terrace_step_gather(terrace_step* step, uint32_t layer,
                                   const terrace_tensors* tensors, terrace_view* const* views) {
  return on_step("terrace_step_gather", step, [=](Step& of) -> Status {
    TERRACE_TRY(bindings::check_views(views, of.sequences()));
    TERRACE_ASSIGN(auto given, bindings::read_tensors(tensors, of.sequences()));
    given.tensors.hints = given.hints;
    std::vector<KvView> gathered(of.sequences());
    TERRACE_TRY(of.gather(LayerId{layer}, given.tensors, gathered));
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      if (!of.status(i)) continue;
      const KvShape& shape = step->runtime->runtime->options().shape;
      TERRACE_TRY(bindings::write_view(views[i], gathered[i], shape));
    }
    return {};
  });
}

terrace_status terrace_step_end(terrace_step* step, const size_t* accepted) {
  return on_step("terrace_step_end", step, [=](Step& of) -> Status {
    return accepted == nullptr ? of.end() : of.end({accepted, of.sequences()});
  });
}

terrace_status terrace_step_status(const terrace_step* step, size_t sequence) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(step, "terrace_step_status", "step"));
    if (sequence < step->step->sequences()) return step->step->status(sequence);
    return fail(Errc::invalid_argument, "terrace_step_status: no sequence {}; the step has {}",
                sequence, step->step->sequences());
  });
}

size_t terrace_step_sequences(const terrace_step* step) {
  return step == nullptr ? 0 : step->step->sequences();
}

void terrace_step_close(terrace_step* step) {
  if (step == nullptr) return;
  step->step.reset();  // gives up what has not ended
  bindings::keep_queue_for_lost(*step);
  delete step;
}
