#include "reclaimer.hpp"

#include "runtime_state.hpp"
#include "sequence/sequence_state.hpp"

namespace terrace {
namespace {

bool lacks(Tier tier, const Status& reserved) noexcept {
  return !reserved && reserved.error().code == Errc::out_of_memory &&
         reserved.error().lacks == tier;
}

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
  while (lacks(Tier::device, reserved) && spill(requester)) reserved = reserve();
  return reserved;
}

Status Reclaimer::make_spare_room(FunctionRef<Status()> reserve) {
  Status reserved = reserve();
  // Once: what a failed try gives back to the pools could be trimmed for ever.
  if (lacks(Tier::host, reserved) && runtime_.release_step_memory()) reserved = reserve();
  if (lacks(Tier::device, reserved) && runtime_.trim_pools()) reserved = reserve();
  return reserved;
}

bool Reclaimer::spill(SequenceState& requester) {
  const bool spilled = requester.spill_one() || spill_other(requester);
  runtime_.trim_pools();
  return spilled;
}

bool Reclaimer::spill_other(const SequenceState& requester) {
  for (std::size_t i = 0;; ++i) {
    std::unique_lock<std::mutex> call;
    SequenceState* other = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i >= sequences_.size()) return false;
      other = sequences_[i];
      // A call of its own is under way otherwise. Once it is taken the sequence cannot go.
      if (other != &requester) call = std::unique_lock(other->mutex, std::try_to_lock);
    }
    if (call.owns_lock() && other->is_idle() && other->spill_one()) return true;
  }
}

}  // namespace terrace
