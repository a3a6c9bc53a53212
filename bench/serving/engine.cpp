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

Result<std::unique_ptr<ServedSequence>> ServingEngine::admit(const MadeUpPrompt& prompt) {
  if (prompt.piece_tokens == 0) return fail(Errc::invalid_argument, "a prompt in empty pieces");
  TERRACE_ASSIGN(auto sequence, runtime_->open_sequence());
  auto served = std::make_unique<ServedSequence>(
      ServedSequence{.traffic = Traffic(pool_, prompt.seed), .sequence = std::move(sequence)});
  TERRACE_TRY(give_prompt(*served, prompt));
  return served;
}

Status ServingEngine::give_prompt(ServedSequence& served, const MadeUpPrompt& prompt) {
  const std::size_t bytes = prompt.tokens * shape().token_bytes();
  TERRACE_TRY(prompt_.reserve(runtime_->backend(), bytes));
  const auto timed = [&served](const auto& call) -> Status {
    const TimePoint begin = now();
    TERRACE_TRY(call());
    served.prompt += now() - begin;
    return {};
  };
  TERRACE_TRY(timed([&] { return served.sequence->begin_prefill(prompt.tokens); }));
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    served.traffic.fill_rows(layer, {0, prompt.tokens}, prompt_.host.data());
    const CopyExtent upload[] = {prompt_.to_device(bytes)};
    TERRACE_TRY(copy_now(upload));
    TERRACE_TRY(timed([&] { return append_layer(served, layer, prompt); }));
  }
  return timed([&] { return served.sequence->end_prefill(); });
}

Status ServingEngine::append_layer(ServedSequence& served, std::size_t layer,
                                   const MadeUpPrompt& prompt) {
  const auto id = static_cast<LayerId>(layer);
  Ticket stored;
  for (std::size_t first = 0; first < prompt.tokens; first += prompt.piece_tokens) {
    const TokenRange tokens{first, std::min(first + prompt.piece_tokens, prompt.tokens)};
    const std::byte* const rows = prompt_.device.data() + first * shape().token_bytes();
    PromptPiece piece{.tokens = tokens, .kv = packed_rows(shape(), rows)};
    if (tokens.end == prompt.tokens) piece.hints = hints(served, layer, tokens);
    TERRACE_ASSIGN(stored, served.sequence->append(id, piece, *compute_));
  }
  TERRACE_TRY(served.sequence->finish(id, *compute_));
  // The next layer's rows take the place of these.
  TERRACE_TRY(wait(stored, runtime_->options().deadline));
  return compute_->drain(runtime_->options().deadline);
}

PromptHints ServingEngine::hints(const ServedSequence& served, std::size_t layer,
                                 TokenRange last_piece) {
  const std::size_t count = std::min(served.sequence->query_window_tokens(), last_piece.size());
  prompt_queries_.resize(count * floats_per_token());
  for (std::size_t i = 0; i < count; ++i) {
    const auto query =
        std::span(prompt_queries_).subspan(i * floats_per_token(), floats_per_token());
    served.traffic.fill_query(layer, last_piece.end - count + i, query);
  }
  return {.query_window = prompt_queries_};
}

Duration ServingEngine::busy() const {
  const QueueCounters counters = compute_->counters();
  return std::accumulate(counters.busy.begin(), counters.busy.end(), Duration{});
}

Status ServingEngine::fill_inputs() {
  const std::size_t tokens = shape().layers * batch_.size();
  const std::size_t query_bytes = floats_per_token() * sizeof(float);
  const std::size_t row_bytes = shape().token_bytes();
  Backend& backend = runtime_->backend();
  TERRACE_TRY(rows_.reserve(backend, tokens * row_bytes));
  TERRACE_TRY(queries_.reserve(backend, tokens * query_bytes));
  TERRACE_TRY(outputs_.reserve(backend, tokens * query_bytes));
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::size_t layer = token / batch_.size();
    const ServedSequence& served = *batch_[token % batch_.size()];
    const std::size_t position = served.sequence->length();
    served.traffic.fill_rows(layer, {position, position + 1},
                             rows_.host.data() + token * row_bytes);
    served.traffic.fill_query(
        layer, position,
        {queries_.host.as<float>() + token * floats_per_token(), floats_per_token()});
  }
  const CopyExtent upload[] = {rows_.to_device(tokens * row_bytes),
                               queries_.to_device(tokens * query_bytes)};
  return copy_now(upload);
}

Status ServingEngine::attend(Step& step) {
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const std::size_t token = layer * batch_.size();
    TERRACE_TRY(step.attend(
        static_cast<LayerId>(layer),
        {.query = queries_.device.as<float>() + token * floats_per_token(),
         .kv = packed_rows(shape(), rows_.device.data() + token * shape().token_bytes()),
         .output = outputs_.device.as<float>() + token * floats_per_token()}));
  }
  return step.end();
}

Result<StepTimes> ServingEngine::step(std::span<ServedSequence* const> batch) {
  batch_.assign(batch.begin(), batch.end());
  TERRACE_TRY(fill_inputs());
  std::vector<StepMember> members;
  members.reserve(batch_.size());
  for (const ServedSequence* const served : batch_) members.push_back({served->sequence.get()});
  const Duration busy_before = busy();
  const TimePoint begin = now();
  TERRACE_ASSIGN(const auto step, runtime_->begin_step(members, *compute_));
  const Status attended = attend(*step);
  const Duration wall = now() - begin;
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    if (step->status(i)) continue;
    return tl::unexpected(step->status(i).error().while_doing(
        fmt::format("sequence {} of a batch of {}", i, batch_.size())));
  }
  TERRACE_TRY(attended);
  return StepTimes{.wall = wall, .busy = busy() - busy_before};
}

Status ServingEngine::check_outputs(std::size_t place) {
  const std::size_t floats = shape().layers * batch_.size() * floats_per_token();
  const CopyExtent download[] = {outputs_.to_host(floats * sizeof(float))};
  TERRACE_TRY(copy_now(download));
  const ServedSequence& served = *batch_[place];
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const std::size_t token = layer * batch_.size() + place;
    const AttendedToken attended{
        .traffic = served.traffic,
        .layer = layer,
        .position = served.sequence->length() - 1,
        .output = {outputs_.host.as<float>() + token * floats_per_token(), floats_per_token()}};
    TERRACE_TRY(runtime_->traits().gives_pseudo_entries
                    ? check_near_full_attention(attended)
                    : check_attended_rows(attended,
                                          served.sequence->selection(static_cast<LayerId>(layer))));
  }
  return {};
}

}  // namespace terrace::bench
