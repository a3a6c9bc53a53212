#include "terrace/runtime/step.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "sequence_state.hpp"
#include "step/step_state.hpp"
#include "step/tensor_checks.hpp"
#include "terrace/core/assert.hpp"

namespace terrace {

Step::State::State(std::shared_ptr<RuntimeState> runtime, Queue& compute,
                   const StepOptions& options)
    : kept_runtime_(std::move(runtime)),
      runtime_(*kept_runtime_),
      compute_(compute),
      options_(options),
      memory_(runtime_.plan, *runtime_.backend, runtime_.pools.steps),
      batch_(runtime_, memory_) {}

Status Step::State::check_members(std::span<const StepMember> members) const {
  if (!ended_) return fail(Errc::invalid_argument, "begin_next: the step has not ended");
  TERRACE_TRY(runtime_.check_open("the step"));
  if (members.empty()) return fail(Errc::invalid_argument, "begin_step: a step without a member");
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].sequence == nullptr) {
      return fail(Errc::invalid_argument, "begin_step: member {} has no sequence", i);
    }
    SequenceState& sequence = state_of(*members[i].sequence);
    if (&sequence.runtime() != &runtime_) {
      return fail(Errc::invalid_argument,
                  "begin_step: member {}, sequence {} of its runtime, is of another runtime", i,
                  index(sequence.parts.work.id));
    }
    if (members[i].tokens > max_positions - tokens) {
      return fail(Errc::invalid_argument,
                  "begin_step: member {} brings {} tokens; all of a step may bring {}", i,
                  members[i].tokens, max_positions);
    }
    tokens += members[i].tokens;
  }
  return {};
}

Status Step::State::begin(std::span<const StepMember> members) {
  TERRACE_TRY(check_members(members));
  statuses_.clear();
  places_.clear();
  tokens_.clear();
  firsts_.clear();
  packed_firsts_.clear();
  packed_tokens_ = 0;
  batch_.clear();
  ended_ = false;
  begun_ = runtime_.backend->clock().now();
  waited_before_ = runtime_.host->waited();
  if (options_.queries != Dtype::f32) memory_.expect_conversion(numbers());
  std::size_t first = 0;
  for (const auto& [sequence, tokens] : members) {
    begin_member(state_of(*sequence), tokens);
    if (statuses_.back()) firsts_.push_back(first);
    first += tokens;
  }
  inputs_.resize(places_.size());
  outputs_.resize(places_.size());
  return {};
}

void Step::State::begin_member(SequenceState& sequence, std::size_t tokens) {
  Participant& one = sequence.participant;
  tokens_.push_back(tokens);
  const std::lock_guard lock(sequence.mutex);
  statuses_.push_back(batch_.begin(one, tokens));
  if (!statuses_.back()) return;
  places_.push_back(statuses_.size() - 1);
  packed_firsts_.push_back(packed_tokens_);
  packed_tokens_ += tokens;
}

Step::State::~State() {
  if (!ended_) give_up();
}

Status Step::State::check(std::string_view call, const StepTensors& tensors) const {
  if (ended_) return fail(Errc::invalid_argument, "{}: the step has ended", call);
  TERRACE_TRY(runtime_.check_open("the step"));
  const Status kv = check_kv(runtime_.plan.shape(), tensors.kv, token_count());
  if (!kv) return tl::unexpected(kv.error().while_doing(call));
  if (tensors.speculated_query != nullptr && tensors.speculated_query_stride == 0) {
    return fail(Errc::invalid_argument, "{}: speculated_query has no stride", call);
  }
  if (!tensors.hints.empty() && tensors.hints.size() != statuses_.size()) {
    return fail(Errc::invalid_argument, "{}: hints of {} sequences; the step has {}", call,
                tensors.hints.size(), statuses_.size());
  }
  return {};
}

Status Step::State::check_outputs(const StepTensors& tensors) const {
  const KvShape& shape = runtime_.plan.shape();
  const TokenVectors outputs{tensors.output, tensors.output_stride};
  TERRACE_TRY(terrace::check_outputs(shape, outputs, tensors.dtype, token_count()));
  // Types other than f32 are converted into memory of the step's own.
  if (tensors.dtype != Dtype::f32) return {};
  const bool token_by_token = std::ranges::none_of(
      batch_.members(),
      [](const StepBatch::Member& member) { return member.participant->attends_exactly(); });
  return check_apart(shape, {tensors.query, tensors.query_stride}, outputs, token_count(),
                     token_by_token);
}

Status Step::State::check_queries(std::string_view call, const StepTensors& tensors) const {
  const Status queries = terrace::check_queries(
      runtime_.plan.shape(), {tensors.query, tensors.query_stride}, tensors.dtype, token_count());
  if (queries) return {};
  return tl::unexpected(queries.error().while_doing(call));
}

StepTensors Step::State::with_strides(StepTensors tensors) const noexcept {
  if (tensors.query_stride == 0) tensors.query_stride = numbers();
  if (tensors.output_stride == 0) tensors.output_stride = numbers();
  return tensors;
}

void Step::State::hand_out(const StepTensors& tensors, std::span<const std::size_t> firsts) {
  const auto* const query = static_cast<const float*>(tensors.query);
  auto* const output = static_cast<float*>(tensors.output);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t token = firsts_[i];
    StepInput& input = inputs_[i];
    input.query = query == nullptr ? nullptr : query + firsts[i] * tensors.query_stride;
    input.query_stride = tensors.query_stride;
    input.kv = tensors.kv;
    input.kv.keys += token * tensors.kv.token_stride;
    input.kv.values += token * tensors.kv.token_stride;
    input.speculated_query =
        tensors.speculated_query == nullptr
            ? nullptr
            : tensors.speculated_query + token * tensors.speculated_query_stride;
    input.speculated_query_stride = tensors.speculated_query_stride;
    input.hints = tensors.hints.empty() ? PromptHints{} : tensors.hints[places_[i]];
    if (output != nullptr)
      outputs_[i] = {output + firsts[i] * tensors.output_stride, tensors.output_stride};
  }
}

Status Step::State::attend(LayerId layer, const StepTensors& given) {
  const StepTensors tensors = with_strides(given);
  TERRACE_TRY(check("attend", tensors));
  TERRACE_TRY(check_queries("attend", tensors));
  if (const Status right = check_outputs(tensors); !right) {
    return tl::unexpected(right.error().while_doing("attend"));
  }
  if (tensors.dtype != Dtype::f32) return attend_converted(layer, tensors);
  hand_out(tensors, firsts_);
  return batch_.attend(layer, inputs_, outputs_, compute_);
}

Status Step::State::attend_converted(LayerId layer, const StepTensors& tensors) {
  TERRACE_TRY(reserve_converted());
  hand_out_in_f32(tensors);
  TERRACE_TRY(batch_.check(layer, inputs_, compute_));
  return batch_.sharing(enqueue_converted(layer, tensors));
}

Status Step::State::convert_queries(const StepTensors& tensors) {
  return convert({.all = {.source = static_cast<const std::byte*>(tensors.query),
                          .from = tensors.dtype,
                          .source_stride = size_bytes(tensors.dtype) * tensors.query_stride,
                          .target = memory_.get().queries.data(),
                          .target_stride = numbers() * sizeof(float)},
                  .from = firsts_,
                  .to = packed_firsts_})
      .map([](Ticket) {});
}

Status Step::State::enqueue_converted(LayerId layer, const StepTensors& tensors) {
  const StepMemory& memory = memory_.get();
  const std::size_t size = size_bytes(tensors.dtype);
  const std::size_t packed = numbers() * sizeof(float);
  TERRACE_TRY(convert_queries(tensors));
  TERRACE_TRY(batch_.attend(layer, inputs_, outputs_, compute_));
  TERRACE_ASSIGN(const Ticket converted,
                 convert({.all = {.source = memory.outputs.data(),
                                  .source_stride = packed,
                                  .target = static_cast<std::byte*>(tensors.output),
                                  .to = tensors.dtype,
                                  .target_stride = size * tensors.output_stride},
                          .from = packed_firsts_,
                          .to = firsts_}));
  batch_.note_converted(converted);
  return {};
}

Status Step::State::check_gather(std::size_t views) const {
  TERRACE_TRY(Participant::check_gathers(runtime_.plan));
  if (views != tokens_.size()) {
    return fail(Errc::invalid_argument, "gather: {} views for {} sequences", views, tokens_.size());
  }
  const auto several = std::ranges::find_if(tokens_, [](std::size_t tokens) { return tokens > 1; });
  if (several == tokens_.end()) return {};
  return fail(Errc::invalid_argument, "gather: member {} has {} tokens; gather takes one of each",
              several - tokens_.begin(), *several);
}

Status Step::State::gather(LayerId layer, const StepTensors& given, std::span<KvView> views) {
  const StepTensors tensors = with_strides(given);
  TERRACE_TRY(check_gather(views.size()));
  TERRACE_TRY(check("gather", tensors));
  TERRACE_TRY(check_queries("gather", tensors));
  const bool converts = tensors.dtype != Dtype::f32;
  if (converts) TERRACE_TRY(reserve_converted());
  converts ? hand_out_in_f32(tensors) : hand_out(tensors, firsts_);
  TERRACE_TRY(batch_.check(layer, inputs_, compute_));
  batch_.leave_attention_to_engine();
  if (converts) TERRACE_TRY(batch_.sharing(convert_queries(tensors)));
  TERRACE_TRY(batch_.prepare(layer, inputs_, compute_));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const StepBatch::Member& member = batch_.members()[i];
    if (member.status) views[places_[i]] = member.participant->view();
  }
  return {};
}

Status Step::State::append(LayerId layer, const StepTensors& given) {
  TERRACE_TRY(Participant::check_appends(runtime_.plan));
  StepTensors tensors = given;
  tensors.query = nullptr;
  tensors.output = nullptr;
  TERRACE_TRY(check("append", tensors));
  hand_out(tensors, firsts_);
  TERRACE_TRY(batch_.check(layer, inputs_, compute_));
  TERRACE_TRY(batch_.leave_attention_out());
  return batch_.prepare(layer, inputs_, compute_);
}

std::size_t Step::State::token_count() const noexcept {
  return std::accumulate(tokens_.begin(), tokens_.end(), std::size_t{0});
}

Status Step::State::reserve_converted() {
  const std::size_t all = packed_tokens_ * numbers();
  return runtime_.reclaimer.make_spare_room([&] { return memory_.reserve_all_queries(all); });
}

void Step::State::hand_out_in_f32(const StepTensors& tensors) {
  StepTensors converted = tensors;
  converted.query = memory_.get().queries.data();
  converted.output = memory_.get().outputs.data();
  converted.dtype = Dtype::f32;
  converted.query_stride = converted.output_stride = numbers();
  hand_out(converted, packed_firsts_);
}

Result<Ticket> Step::State::convert(const Converting& tokens) {
  conversions_.clear();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!batch_.members()[i].status) continue;
    ConvertQueries& one = conversions_.emplace_back(tokens.all);
    one.shape = runtime_.plan.shape();
    one.source += tokens.from[i] * tokens.all.source_stride;
    one.target += tokens.to[i] * tokens.all.target_stride;
    one.tokens = tokens_[places_[i]];
  }
  return runtime_.backend->ops().convert_queries(compute_, Phase::update, conversions_);
}

Status Step::State::check_accepted(std::span<const std::size_t> accepted) const {
  if (accepted.size() != tokens_.size()) {
    return fail(Errc::invalid_argument, "end: {} counts of accepted tokens for {} sequences",
                accepted.size(), tokens_.size());
  }
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i] <= tokens_[i]) continue;
    return fail(Errc::invalid_argument, "end: {} tokens accepted of member {}, which has {}",
                accepted[i], i, tokens_[i]);
  }
  return {};
}

Status Step::State::end(std::span<const std::size_t> accepted) {
  if (ended_) return fail(Errc::invalid_argument, "end: the step has ended");
  TERRACE_TRY(runtime_.check_open("the step"));
  const bool all_done = std::ranges::all_of(batch_.members(), [](const StepBatch::Member& member) {
    return !member.status || member.participant->all_layers_done();
  });
  if (!all_done) return fail(Errc::invalid_argument, "end: not all layers were attended");
  if (const Status failure = batch_.failure(); !failure) {
    give_up();
    return failure;
  }
  if (!accepted.empty()) TERRACE_TRY(check_accepted(accepted));
  kept_.clear();
  for (const std::size_t place : places_) {
    kept_.push_back(accepted.empty() ? tokens_[place] : accepted[place]);
  }
  const std::size_t prompt = prompt_tokens();
  batch_.end(kept_);
  // A prompt that is computed again waits for no rows.
  const TimePoint now = runtime_.backend->clock().now();
  const Duration waited = runtime_.host->waited() - waited_before_;
  runtime_.prompts.note(static_cast<double>(prompt), now - begun_ - waited, now);
  take_statuses();
  return {};
}

std::size_t Step::State::prompt_tokens() const {
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const StepBatch::Member& member = batch_.members()[i];
    if (member.status && member.participant->is_prompt()) tokens += tokens_[places_[i]];
  }
  return 2 * tokens > token_count() ? tokens : 0;
}

void Step::State::give_up() {
  batch_.give_up();
  take_statuses();
}

void Step::State::take_statuses() {
  ended_ = true;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    statuses_[places_[i]] = batch_.members()[i].status;
  }
}

const Status& Step::State::status(std::size_t sequence) const noexcept {
  TERRACE_ASSERT(sequence < statuses_.size());
  const auto at = std::ranges::find(places_, sequence);
  if (ended_ || at == places_.end()) return statuses_[sequence];
  return batch_.members()[static_cast<std::size_t>(at - places_.begin())].status;
}

Step::Step(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Step::~Step() = default;

Status Step::begin_next(std::span<const StepMember> members) { return state_->begin(members); }

Status Step::attend(LayerId layer, const StepTensors& tensors) {
  return state_->attend(layer, tensors);
}
Status Step::gather(LayerId layer, const StepTensors& tensors, std::span<KvView> views) {
  return state_->gather(layer, tensors, views);
}
Status Step::append(LayerId layer, const StepTensors& tensors) {
  return state_->append(layer, tensors);
}
Status Step::end() { return state_->end({}); }
Status Step::end(std::span<const std::size_t> accepted) { return state_->end(accepted); }
const Status& Step::status(std::size_t sequence) const noexcept { return state_->status(sequence); }
std::size_t Step::sequences() const noexcept { return state_->sequences(); }

}  // namespace terrace
