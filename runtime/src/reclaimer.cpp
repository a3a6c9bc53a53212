#include "reclaimer.hpp"

#include "runtime_state.hpp"
#include "sequence/sequence_state.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

bool lacks(Tier tier, const Status& reserved) noexcept {
  return !reserved && reserved.error().code == Errc::out_of_memory &&
         reserved.error().lacks == tier;
}

constexpr auto spill_if_idle = [](SequenceState& sequence) {
  return sequence.is_idle() && sequence.spill_one();
};

}  // namespace

void Reclaimer::enter(SequenceState& sequence) {
  const std::lock_guard lock(mutex_);
  sequences_.push_back(&sequence);
}

void Reclaimer::leave(SequenceState& sequence) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(sequences_, &sequence);
  }
  const std::lock_guard last(sequence.mutex);
}

Status Reclaimer::make_room(SequenceState& requester, FunctionRef<Status()> reserve) {
  Status reserved = make_spare_room(reserve);
  for (;;) {
    if (lacks(Tier::device, reserved)) {
      if (!spill(requester)) return reserved;
    } else if (lacks(Tier::host, reserved) && runtime_.mover() != nullptr) {
      const Status sent = send_rows_away(requester);
      if (!sent) return tl::unexpected(reserved.error().while_doing(sent.error().message()));
    } else {
      return reserved;
    }
    reserved = reserve();
  }
}

Status Reclaimer::make_spare_room(FunctionRef<Status()> reserve) {
  Status reserved = reserve();
  // Once: what a failed try gives back to the pools could be trimmed for ever.
  if (lacks(Tier::host, reserved) && runtime_.release_step_memory()) reserved = reserve();
  if (lacks(Tier::device, reserved) && runtime_.trim_pools()) reserved = reserve();
  return reserved;
}

bool Reclaimer::exceeds_limit(Tier tier) const noexcept {
  const MemoryUsage usage = runtime_.backend->memory(tier);
  return usage.in_use > usage.limit;
}

Status Reclaimer::shrink(Tier tier) {
  const auto take = [&](SequenceState& other) {
    if (tier == Tier::device) return spill_if_idle(other);
    return other.may_send_rows_away() && other.send_rows_away(/*patient=*/false).value_or(0) > 0;
  };
  bool may_take = tier == Tier::device || runtime_.mover() != nullptr;
  do {
    runtime_.trim_pools();
    runtime_.pages().trim();
    if (!exceeds_limit(tier)) return {};
    may_take = may_take && take_from_other(nullptr, take);
  } while (may_take);
  const MemoryUsage usage = runtime_.backend->memory(tier);
  return fail(Errc::out_of_memory, "{}.memory is {}, {} in use: close or pause a sequence",
              to_string(tier), format_size(usage.limit), format_size(usage.in_use));
}

bool Reclaimer::spill(SequenceState& requester) {
  const bool spilled = requester.spill_one() || take_from_other(&requester, spill_if_idle);
  runtime_.trim_pools();
  return spilled;
}

Status Reclaimer::send_rows_away(SequenceState& requester) {
  Status refused = fail(Errc::out_of_memory, "all rows on the host are in use");
  const auto send = [&](SequenceState& sequence, bool patient) {
    const Result<std::size_t> sent = sequence.send_rows_away(patient);
    if (!sent) refused = tl::unexpected(sent.error());
    return sent.value_or(0) > 0;
  };
  const bool any = send(requester, /*patient=*/false) ||
                   take_from_other(&requester,
                                   [&](SequenceState& other) {
                                     return other.may_send_rows_away() && send(other, false);
                                   }) ||
                   send(requester, /*patient=*/true);
  return any ? Status{} : refused;
}

bool Reclaimer::take_from_other(const SequenceState* requester,
                                FunctionRef<bool(SequenceState&)> take) {
  for (std::size_t i = 0;; ++i) {
    std::unique_lock<std::mutex> call;
    SequenceState* other = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i >= sequences_.size()) return false;
      other = sequences_[i];
      // A call of its own is under way otherwise. Once it is taken the sequence cannot go.
      if (other != requester) call = std::unique_lock(other->mutex, std::try_to_lock);
    }
    if (call.owns_lock() && take(*other)) return true;
  }
}

}  // namespace terrace
