#include "sequence_context.hpp"

#include <algorithm>
#include <array>

namespace terrace {
namespace {

/// The need of a call that is for a phase.
std::string_view need_of(SequencePhase phase) noexcept {
  switch (phase) {
    case SequencePhase::step:
      return "no step is under way";
    case SequencePhase::paused:
      return "the sequence is not paused";
    case SequencePhase::idle:
    case SequencePhase::lost:
      break;
  }
  return "the sequence must be idle";
}

std::string_view name_of(SequencePhase phase) noexcept {
  switch (phase) {
    case SequencePhase::idle:
      return "it is idle";
    case SequencePhase::step:
      return "a step is under way";
    case SequencePhase::paused:
      return "it is paused: resume() it";
    case SequencePhase::lost:
      break;
  }
  return "it is lost: close it";
}

}  // namespace

SequenceContext::SequenceContext(RuntimeState& shared, SequenceState& self, Lanes queues)
    : runtime(shared),
      owner(self),
      id(shared.next_sequence()),
      lanes(std::move(queues)),
      journal(shared.options.observer, id) {}

TokenRange SequenceContext::sinks_at(std::size_t position) const noexcept {
  return {0, std::min(split.sinks, position)};
}

TokenRange SequenceContext::window_at(std::size_t position) const noexcept {
  // A window never takes a token back that had left it: it grows by one token with each, at most.
  const std::size_t window = split_at(position).window;
  const std::size_t recent = position > window ? position - window : 0;
  return {std::max(sinks_at(position).end, recent), position + 1};
}

std::size_t SequenceContext::most_kept() const noexcept { return runtime.most_kept(split.kept); }

std::size_t SequenceContext::undecided_from(std::size_t position) const noexcept {
  if (retained_end > 0) return retained_end;
  // All tokens are attended to until retention has to decide.
  const std::size_t all = split.sinks + split.kept + 2 * split.window;
  if (position < all) return sinks_at(position).end;
  // Tokens after those of a first flush stay in the window, however long the flush takes.
  return flush_end > 0 ? flush_end : window_at(position).begin;
}

Status SequenceContext::require(SequencePhase wanted) const {
  if (phase == wanted) return {};
  return fail(Errc::invalid_argument, "{}; {}", need_of(wanted), name_of(phase));
}

Status SequenceContext::check_length(std::size_t tokens) const {
  if (tokens <= max_positions - length) return {};
  return fail(Errc::invalid_argument, "{} tokens and {} more are more than {}", length, tokens,
              max_positions);
}

Status SequenceContext::check_layer(LayerId layer, std::size_t next, Queue& queue) const {
  if (next == shape().layers) {
    return fail(Errc::invalid_argument, "layer {}: all {} layers are done", index(layer), next);
  }
  if (index(layer) != next) {
    return fail(Errc::invalid_argument, "layer {} is not the next one; layer {} is", index(layer),
                next);
  }
  TERRACE_TRY(runtime.check_compute(queue));
  // Layers share buffers, in the order of one queue.
  if (compute == nullptr || compute == &queue) return {};
  return fail(Errc::invalid_argument, "layer {} is for queue {}, and the layers before it for {}",
              next, queue.name(), compute->name());
}

Error SequenceContext::named(std::string_view call, const Error& error) const {
  std::array<char, 64> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "{} of sequence {}", call, index(id));
  return error.while_doing({text.data(), std::min(end.size, text.size())});
}

void SequenceContext::resolve_budget(std::size_t context) {
  if (budget_resolved) return;
  const policies::BudgetTerms terms = runtime.budget_terms(context);
  budget_tokens = terms.budget_tokens;
  budget_context = context;
  split = policies::split_budget(terms, traits());
  list_room = runtime.room_for(split.selected);
  budget_resolved = true;
}

Status SequenceContext::await(WaitReason reason, const Ticket& ticket, Duration patience) {
  if (poll(ticket).value_or(false)) return {};  // no wait to count
  const TimePoint begin = clock().now();
  Status done = wait(ticket, patience);
  count_wait(reason, begin);
  return done;
}

void SequenceContext::count_upkeep(TimePoint begin) {
  const Duration taken = clock().now() - begin;
  counters.upkeep += taken;
  if (poll(computed).value_or(true)) counters.upkeep_waited += taken;
}

Status SequenceContext::reclaiming(FunctionRef<Status()> reserve) const {
  return runtime.reclaimer.make_room(owner, reserve);
}

Status SequenceContext::copy_now(Queue& queue, Phase why, std::span<const CopyExtent> extents,
                                 Buffer& on_host) {
  TERRACE_ASSIGN(const Ticket copied, queue.copy(why, extents));
  const Status done = await(WaitReason::copy, copied);
  if (!done) abandoned.push_back(std::move(on_host));
  return done;
}

}  // namespace terrace
