#include "serving/engine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "harness/thread_cpu_time.hpp"
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

Result<std::unique_ptr<ServedSequence>> ServingEngine::serve(const MadeUpPrompt& prompt,
                                                             std::unique_ptr<Sequence> sequence) {
  if (prompt.piece_tokens == 0) return fail(Errc::invalid_argument, "a prompt in empty pieces");
  auto served = std::make_unique<ServedSequence>(ServedSequence{
      .traffic = Traffic(pool_, prompt.seed), .sequence = std::move(sequence), .prompt = prompt});
  TERRACE_TRY(served->sequence->begin_prompt(served->prompt_tokens_left()));
  return served;
}

Result<std::unique_ptr<ServedSequence>> ServingEngine::announce(const MadeUpPrompt& prompt) {
  TERRACE_ASSIGN(auto sequence, runtime_->open_sequence());
  return serve(prompt, std::move(sequence));
}

Result<std::unique_ptr<ServedSequence>> ServingEngine::find(const MadeUpPrompt& prompt,
                                                            const PrefixQuery& prefix) {
  TERRACE_ASSIGN(auto sequence, runtime_->open_sequence(prefix));
  return serve(prompt, std::move(sequence));
}

Result<std::unique_ptr<ServedSequence>> ServingEngine::store(const MadeUpPrompt& prompt) {
  TERRACE_ASSIGN(auto served, announce(prompt));
  TERRACE_TRY(store_until(*served, prompt.tokens));
  return served;
}

Result<Duration> ServingEngine::store_until(ServedSequence& served, std::size_t tokens) {
  Duration wall{};
  while (served.sequence->length() < tokens) {
    ServedMember piece = served.next();
    piece.tokens = std::min(piece.tokens, tokens - served.sequence->length());
    TERRACE_ASSIGN(const Duration taken, store_piece(piece));
    wall += taken;
  }
  return wall;
}

Result<Duration> ServingEngine::store_piece(const ServedMember& piece) {
  // A retention policy needs the prompt's attention.
  const bool attends = runtime_->retention_traits() != nullptr;
  TERRACE_TRY(attends ? lay_out({&piece, 1}) : lay_out_rows({&piece, 1}));
  const StepMember member{piece.served->sequence.get(), piece.tokens};
  const TimePoint begin = now();
  TERRACE_ASSIGN(const auto step, runtime_->begin_step({&member, 1}, *compute_));
  TERRACE_TRY(step->status(0));
  TERRACE_TRY(attends ? attend(*step) : append(*step));
  TERRACE_TRY(step->end());
  TERRACE_TRY(step->status(0));
  return now() - begin;
}

Status ServingEngine::append(Step& step) {
  const PlacedMember& member = batch_.front();
  const std::size_t count =
      std::min(member.served->sequence->query_window_tokens(), member.tokens.size());
  const std::size_t floats = count * floats_per_token();
  last_queries_.resize(shape().layers * floats);  // all layers: they are read as the queue comes by
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const auto queries = std::span(last_queries_).subspan(layer * floats, floats);
    member.served->traffic.fill_queries(layer, {member.tokens.end - count, member.tokens.end},
                                        queries);
    const PromptHints of_piece{.query_window = queries};
    const std::byte* const rows =
        rows_.device.data() + layer * batch_tokens_ * shape().token_bytes();
    TERRACE_TRY(step.append(static_cast<LayerId>(layer),
                            {.kv = packed_rows(shape(), rows), .hints = {&of_piece, 1}}));
  }
  return {};
}

Duration ServingEngine::busy() const {
  const QueueCounters counters = compute_->counters();
  return std::accumulate(counters.busy.begin(), counters.busy.end(), Duration{});
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
  return {};
}

Result<StepTimes> ServingEngine::step(std::span<const ServedMember> batch) {
  TERRACE_TRY(lay_out(batch));
  std::vector<StepMember> members;
  members.reserve(batch.size());
  for (const auto& [served, tokens] : batch) members.push_back({served->sequence.get(), tokens});
  const Duration busy_before = busy();
  const TimePoint begin = now();
  const Duration cpu_begin = thread_cpu_time();
  TERRACE_ASSIGN(const auto step, runtime_->begin_step(members, *compute_));
  const Duration cpu_attend = thread_cpu_time();
  Status ended = attend(*step);
  const Duration cpu_end = thread_cpu_time();
  if (ended) ended = step->end();
  const StepCpu cpu{.begin = cpu_attend - cpu_begin,
                    .attend = cpu_end - cpu_attend,
                    .end = thread_cpu_time() - cpu_end};
  const Duration wall = now() - begin;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (step->status(i)) continue;
    return tl::unexpected(step->status(i).error().while_doing(
        fmt::format("sequence {} of a batch of {}", i, batch.size())));
  }
  TERRACE_TRY(ended);
  return StepTimes{.wall = wall, .busy = busy() - busy_before, .cpu = cpu};
}

Status ServingEngine::check_outputs(std::size_t place, std::size_t heads) {
  const std::size_t floats = shape().layers * batch_tokens_ * floats_per_token();
  const CopyExtent download[] = {outputs_.to_host(floats * sizeof(float))};
  TERRACE_TRY(copy_now(download));
  const PlacedMember& member = batch_[place];
  const ServedSequence& served = *member.served;
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const std::size_t last = place_in_tensors(layer, member) + member.tokens.size() - 1;
    TERRACE_TRY(check_output(
        served,
        {.traffic = served.traffic,
         .layer = layer,
         .position = served.sequence->length() - 1,
         .output = {outputs_.host.as<float>() + last * floats_per_token(), floats_per_token()},
         .head_stride = std::max<std::size_t>(shape().query_heads / heads, 1)}));
  }
  return {};
}

Status ServingEngine::check_output(const ServedSequence& served, const AttendedToken& token) const {
  // A prompt's tokens attend to all rows, with any policy.
  if (token.position < served.prompt.tokens) {
    return check_attended_rows(token, {.window = {0, token.position + 1}});
  }
  if (runtime_->traits().gives_pseudo_entries) return check_near_full_attention(token);
  return check_attended_rows(token, served.sequence->selection(static_cast<LayerId>(token.layer)));
}

}  // namespace terrace::bench
