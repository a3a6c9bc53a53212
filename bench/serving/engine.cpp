#include "serving/engine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "serving/attention_check.hpp"
#include "terrace/core/drain_to_end.hpp"

namespace terrace::bench {
namespace {

TimePoint now() noexcept { return std::chrono::steady_clock::now(); }

}  // namespace

Status ServingEngine::Tensor::reserve(Backend& backend, std::size_t bytes) {
  if (host.bytes() >= bytes) return {};
  for (const auto& [buffer, tier] : {std::pair{&host, Tier::host}, {&device, Tier::device}}) {
    buffer->reset();
    TERRACE_ASSIGN(*buffer,
                   backend.allocate({.bytes = bytes, .tier = tier, .purpose = Purpose::model}));
  }
  return {};
}

ServingEngine::ServingEngine(const ServingOptions& options, std::unique_ptr<Runtime> runtime,
                             std::unique_ptr<Queue> compute)
    : runtime_(std::move(runtime)),
      compute_(std::move(compute)),
      pool_(shape(), options.runtime.seed) {}

ServingEngine::~ServingEngine() { drain_to_end(*compute_, runtime_->options().deadline); }

Result<std::unique_ptr<ServingEngine>> ServingEngine::create(const ServingOptions& options) {
  TERRACE_ASSIGN(auto backend, options.backend());
  TERRACE_ASSIGN(auto runtime, Runtime::open(options.runtime, std::move(backend)));
  TERRACE_ASSIGN(auto compute,
                 runtime->backend().make_queue({.name = "compute", .high_priority = true}));
  return std::unique_ptr<ServingEngine>(
      new ServingEngine(options, std::move(runtime), std::move(compute)));
}

Status ServingEngine::copy_now(std::span<const CopyExtent> extents) {
  TERRACE_ASSIGN(const Ticket copied, compute_->copy(Phase::model, extents));
  return compute_->wait(copied, runtime_->options().deadline);
}

Result<std::unique_ptr<ServedSequence>> ServingEngine::open(const MadeUpPrompt& prompt) {
  if (prompt.piece_tokens == 0) return fail(Errc::invalid_argument, "a prompt in empty pieces");
  TERRACE_ASSIGN(auto sequence, runtime_->open_sequence());
  return std::make_unique<ServedSequence>(ServedSequence{
      .traffic = Traffic(pool_, prompt.seed), .sequence = std::move(sequence), .prompt = prompt});
}

Result<std::unique_ptr<ServedSequence>> ServingEngine::announce(const MadeUpPrompt& prompt) {
  TERRACE_ASSIGN(auto served, open(prompt));
  TERRACE_TRY(served->sequence->begin_prompt(prompt.tokens));
  return served;
}

Result<std::unique_ptr<ServedSequence>> ServingEngine::store(const MadeUpPrompt& prompt) {
  TERRACE_ASSIGN(auto served, announce(prompt));
  while (served->prompt_tokens_left() > 0) TERRACE_TRY(store_piece(served->next()));
  return served;
}

Status ServingEngine::store_piece(const ServedMember& piece) {
  TERRACE_TRY(lay_out({&piece, 1}));
  const StepMember member{piece.served->sequence.get(), piece.tokens};
  TERRACE_ASSIGN(const auto step, runtime_->begin_step({&member, 1}, *compute_));
  TERRACE_TRY(step->status(0));
  // A retention policy needs the prompt's attention.
  TERRACE_TRY(runtime_->retention_traits() == nullptr ? append(*step) : attend(*step));
  return step->status(0);
}

Status ServingEngine::append(Step& step) {
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const PromptHints of_piece = hints(layer, batch_.front());
    const std::byte* const rows =
        rows_.device.data() + layer * batch_tokens_ * shape().token_bytes();
    TERRACE_TRY(step.append(static_cast<LayerId>(layer),
                            {.kv = packed_rows(shape(), rows), .hints = {&of_piece, 1}}));
  }
  return step.end();
}

Duration ServingEngine::busy() const {
  const QueueCounters counters = compute_->counters();
  return std::accumulate(counters.busy.begin(), counters.busy.end(), Duration{});
}

Status ServingEngine::lay_out(std::span<const ServedMember> batch) {
  batch_.clear();
  batch_tokens_ = 0;
  for (const auto& [served, tokens] : batch) {
    const std::size_t begin = served->sequence->length();
    batch_.push_back({served, {begin, begin + tokens}, batch_tokens_});
    batch_tokens_ += tokens;
  }
  const std::size_t tokens = shape().layers * batch_tokens_;
  const std::size_t row_bytes = tokens * shape().token_bytes();
  const std::size_t query_bytes = tokens * floats_per_token() * sizeof(float);
  Backend& backend = runtime_->backend();
  TERRACE_TRY(rows_.reserve(backend, row_bytes));
  TERRACE_TRY(queries_.reserve(backend, query_bytes));
  TERRACE_TRY(outputs_.reserve(backend, query_bytes));
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    for (const PlacedMember& member : batch_) fill_inputs(layer, member);
  }
  const CopyExtent upload[] = {rows_.to_device(row_bytes), queries_.to_device(query_bytes)};
  return copy_now(upload);
}

void ServingEngine::fill_inputs(std::size_t layer, const PlacedMember& member) {
  const std::size_t at = place_in_tensors(layer, member);
  const Traffic& traffic = member.served->traffic;
  traffic.fill_rows(layer, member.tokens, rows_.host.data() + at * shape().token_bytes());
  traffic.fill_queries(layer, member.tokens,
                       {queries_.host.as<float>() + at * floats_per_token(),
                        member.tokens.size() * floats_per_token()});
}

PromptHints ServingEngine::hints(std::size_t layer, const PlacedMember& member) const {
  const ServedSequence& served = *member.served;
  if (member.tokens.begin >= served.prompt.tokens) return {};
  const std::size_t tokens = member.tokens.size();
  const std::size_t count = std::min(served.sequence->query_window_tokens(), tokens);
  const std::size_t at = place_in_tensors(layer, member) + tokens - count;
  return {.query_window = {queries_.host.as<float>() + at * floats_per_token(),
                           count * floats_per_token()}};
}

Status ServingEngine::attend(Step& step) {
  std::vector<PromptHints> of_members(batch_.size());
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    for (std::size_t i = 0; i < batch_.size(); ++i) of_members[i] = hints(layer, batch_[i]);
    const std::size_t token = layer * batch_tokens_;
    TERRACE_TRY(step.attend(
        static_cast<LayerId>(layer),
        {.query = queries_.device.as<float>() + token * floats_per_token(),
         .kv = packed_rows(shape(), rows_.device.data() + token * shape().token_bytes()),
         .speculated_query = queries_.device.as<float>() + token * floats_per_token(),
         .output = outputs_.device.as<float>() + token * floats_per_token(),
         .hints = of_members,
         .speculated_query_stride = floats_per_token()}));
  }
  return step.end();
}

Result<StepTimes> ServingEngine::step(std::span<const ServedMember> batch) {
  TERRACE_TRY(lay_out(batch));
  std::vector<StepMember> members;
  members.reserve(batch.size());
  for (const auto& [served, tokens] : batch) members.push_back({served->sequence.get(), tokens});
  const Duration busy_before = busy();
  const TimePoint begin = now();
  TERRACE_ASSIGN(const auto step, runtime_->begin_step(members, *compute_));
  const Status attended = attend(*step);
  const Duration wall = now() - begin;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (step->status(i)) continue;
    return tl::unexpected(step->status(i).error().while_doing(
        fmt::format("sequence {} of a batch of {}", i, batch.size())));
  }
  TERRACE_TRY(attended);
  return StepTimes{.wall = wall, .busy = busy() - busy_before};
}

Status ServingEngine::check_outputs(std::size_t place) {
  const std::size_t floats = shape().layers * batch_tokens_ * floats_per_token();
  const CopyExtent download[] = {outputs_.to_host(floats * sizeof(float))};
  TERRACE_TRY(copy_now(download));
  const PlacedMember& member = batch_[place];
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const std::size_t last = place_in_tensors(layer, member) + member.tokens.size() - 1;
    TERRACE_TRY(
        check_output(*member.served, layer, outputs_.host.as<float>() + last * floats_per_token()));
  }
  return {};
}

Status ServingEngine::check_output(const ServedSequence& served, std::size_t layer,
                                   const float* output) const {
  const AttendedToken token{.traffic = served.traffic,
                            .layer = layer,
                            .position = served.sequence->length() - 1,
                            .output = {output, floats_per_token()}};
  // A prompt's tokens attend to all rows, with any policy.
  if (token.position < served.prompt.tokens) {
    return check_attended_rows(token, {.window = {0, token.position + 1}});
  }
  if (runtime_->traits().gives_pseudo_entries) return check_near_full_attention(token);
  return check_attended_rows(token, served.sequence->selection(static_cast<LayerId>(layer)));
}

}  // namespace terrace::bench
