#include "terrace/runtime/step.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "sequence/sequence_state.hpp"
#include "step_state.hpp"

namespace terrace {

Step::State::State(RuntimeState& runtime, std::span<const Part> parts, Queue& compute)
    : runtime_(runtime), compute_(compute), statuses_(parts.size()) {
  std::vector<Participant*> begun;
  std::size_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [sequence, tokens] = parts[i];
    tokens_.push_back(tokens);
    firsts_.push_back(first);
    first += tokens;
    const std::lock_guard lock(sequence->mutex);
    statuses_[i] = sequence->participant.begin(tokens);
    if (!statuses_[i]) continue;
    places_.push_back(i);
    begun.push_back(&sequence->participant);
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
  if (!tensors.hints.empty() && tensors.hints.size() != statuses_.size()) {
    return fail(Errc::invalid_argument, "attend: hints of {} sequences; the step has {}",
                tensors.hints.size(), statuses_.size());
  }
  if (ended_) return fail(Errc::invalid_argument, "attend: the step has ended");
  return {};
}

void Step::State::hand_out(const StepTensors& tensors) {
  const std::size_t packed = runtime_.shape().query_heads * runtime_.shape().head_dim;
  const std::size_t query_stride = tensors.query_stride == 0 ? packed : tensors.query_stride;
  const std::size_t output_stride = tensors.output_stride == 0 ? packed : tensors.output_stride;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t token = firsts_[places_[i]];
    StepInput& input = inputs_[i];
    input.query = tensors.query + token * query_stride;
    input.query_stride = query_stride;
    input.kv = tensors.kv;
    input.kv.keys += token * tensors.kv.token_stride;
    input.kv.values += token * tensors.kv.token_stride;
    input.layer_input = tensors.layer_input == nullptr
                            ? nullptr
                            : tensors.layer_input + token * tensors.layer_input_stride;
    input.layer_input_stride = tensors.layer_input_stride;
    input.hints = tensors.hints.empty() ? PromptHints{} : tensors.hints[places_[i]];
    outputs_[i] = {tensors.output + token * output_stride, output_stride};
  }
}

Status Step::State::attend(LayerId layer, const StepTensors& tensors) {
  TERRACE_TRY(check(tensors));
  hand_out(tensors);
  return batch_->attend(layer, inputs_, outputs_, compute_);
}

Status Step::State::end(std::span<const std::size_t> accepted) {
  if (ended_) return fail(Errc::invalid_argument, "end: the step has ended");
  const bool all_done = std::ranges::all_of(batch_->members(), [](const StepBatch::Member& member) {
    return !member.status || member.participant->all_layers_done();
  });
  if (!all_done) return fail(Errc::invalid_argument, "end: not all layers were attended");
  std::vector<std::size_t> kept = tokens_;
  if (!accepted.empty()) {
    if (!std::ranges::equal(accepted, tokens_, std::less_equal{})) {
      return fail(Errc::invalid_argument,
                  "end: {} counts of accepted tokens do not fit the step's {} sequences",
                  accepted.size(), tokens_.size());
    }
    kept.assign(accepted.begin(), accepted.end());
  }
  std::vector<std::size_t> of_members;
  for (const std::size_t place : places_) of_members.push_back(kept[place]);
  batch_->end(of_members);
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
Status Step::end() { return state_->end({}); }
Status Step::end(std::span<const std::size_t> accepted) { return state_->end(accepted); }
const Status& Step::status(std::size_t sequence) const noexcept { return state_->status(sequence); }
std::size_t Step::sequences() const noexcept { return state_->sequences(); }

}  // namespace terrace
