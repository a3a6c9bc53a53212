#include "terrace/runtime/step.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "sequence/sequence_state.hpp"
#include "step_state.hpp"

namespace terrace {

Step::State::State(RuntimeState& runtime, std::span<SequenceState* const> sequences, Queue& compute)
    : runtime_(runtime), compute_(compute), statuses_(sequences.size()) {
  std::vector<Participant*> begun;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::lock_guard lock(sequences[i]->mutex);
    statuses_[i] = sequences[i]->participant.begin();
    if (!statuses_[i]) continue;
    places_.push_back(i);
    begun.push_back(&sequences[i]->participant);
  }
  batch_.emplace(runtime, begun);
  inputs_.resize(begun.size());
  outputs_.resize(begun.size());
}

Step::State::~State() {
  if (!ended_) give_up();
}

Status Step::State::check(const StepTensors& tensors) const {
  if (tensors.query == nullptr || tensors.kv.keys == nullptr || tensors.kv.values == nullptr ||
      tensors.output == nullptr) {
    return fail(Errc::invalid_argument, "attend: queries, keys, values or the output are missing");
  }
  if (tensors.layer_input != nullptr && tensors.layer_input_stride == 0) {
    return fail(Errc::invalid_argument, "attend: layer_input has no stride");
  }
  if (ended_) return fail(Errc::invalid_argument, "attend: the step has ended");
  return {};
}

Status Step::State::attend(LayerId layer, const StepTensors& tensors) {
  TERRACE_TRY(check(tensors));
  const KvShape& shape = runtime_.shape();
  const std::size_t packed = shape.query_heads * shape.head_dim;
  const auto or_packed = [&](std::size_t stride) { return stride == 0 ? packed : stride; };
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t token = places_[i];
    StepInput& input = inputs_[i];
    input.query = tensors.query + token * or_packed(tensors.query_stride);
    input.kv = tensors.kv;
    input.kv.keys += token * tensors.kv.token_stride;
    input.kv.values += token * tensors.kv.token_stride;
    input.layer_input = tensors.layer_input == nullptr
                            ? nullptr
                            : tensors.layer_input + token * tensors.layer_input_stride;
    outputs_[i] = tensors.output + token * or_packed(tensors.output_stride);
  }
  return batch_->attend(layer, inputs_, outputs_, compute_);
}

Status Step::State::end() {
  if (ended_) return fail(Errc::invalid_argument, "end: the step has ended");
  const bool all_done = std::ranges::all_of(batch_->members(), [](const StepBatch::Member& member) {
    return !member.status || member.participant->all_layers_done();
  });
  if (!all_done) return fail(Errc::invalid_argument, "end: not all layers were attended");
  batch_->end();
  take_statuses();
  return {};
}

void Step::State::give_up() {
  batch_->give_up();
  take_statuses();
}

void Step::State::take_statuses() {
  ended_ = true;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    statuses_[places_[i]] = batch_->members()[i].status;
  }
}

const Status& Step::State::status(std::size_t sequence) const noexcept {
  const auto at = std::ranges::find(places_, sequence);
  if (ended_ || at == places_.end()) return statuses_[sequence];
  return std::as_const(*batch_).members()[static_cast<std::size_t>(at - places_.begin())].status;
}

Step::Step(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Step::~Step() = default;

Status Step::attend(LayerId layer, const StepTensors& tensors) {
  return state_->attend(layer, tensors);
}
Status Step::end() { return state_->end(); }
const Status& Step::status(std::size_t sequence) const noexcept { return state_->status(sequence); }
std::size_t Step::sequences() const noexcept { return state_->sequences(); }

}  // namespace terrace
