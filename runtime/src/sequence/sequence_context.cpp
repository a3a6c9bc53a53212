#include "sequence_context.hpp"

#include <algorithm>

namespace terrace {

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
  const std::size_t recent = position > split.window ? position - split.window : 0;
  return {std::max(sinks_at(position).end, recent), position + 1};
}

void SequenceContext::resolve_budget(std::size_t context) {
  if (budget_resolved) return;
  policies::BudgetTerms terms = options().budget_terms(context);
  if (keeps_everything()) terms.budget_tokens = context;
  budget_tokens = terms.budget_tokens;
  split = policies::split_budget(terms, traits());
  budget_resolved = true;
}

void SequenceContext::forget_budget() noexcept {
  budget_resolved = false;
  budget_tokens = 0;
  split = {};
}

Status SequenceContext::await(WaitReason reason, const Ticket& ticket) {
  const TimePoint begin = clock().now();
  Status done = wait(ticket, deadline());
  count_wait(reason, begin);
  return done;
}

void SequenceContext::count_upkeep(TimePoint begin) {
  const Duration taken = clock().now() - begin;
  counters.upkeep += taken;
  if (poll(computed).value_or(true)) counters.upkeep_waited += taken;
}

Status SequenceContext::reclaiming(FunctionRef<Status()> reserve) const {
  const auto lacks_memory = [](const Status& reserved) {
    return !reserved && reserved.error().code == Errc::out_of_memory;
  };
  Status reserved = reserve();
  // Once: what a failed try gives back to the pools could be trimmed for ever.
  if (lacks_memory(reserved) && runtime.trim_pools()) reserved = reserve();
  while (lacks_memory(reserved) && runtime.spill(owner)) reserved = reserve();
  return reserved;
}

Status SequenceContext::copy_now(Queue& queue, Phase why, std::span<const CopyExtent> extents,
                                 Buffer& on_host) {
  TERRACE_ASSIGN(const Ticket copied, queue.copy(why, extents));
  const Status done = await(WaitReason::copy, copied);
  if (!done) abandoned.push_back(std::move(on_host));
  return done;
}

}  // namespace terrace
