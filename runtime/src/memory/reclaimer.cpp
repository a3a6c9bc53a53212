#include "reclaimer.hpp"

#include <algorithm>
#include <span>

#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

bool lacks(Tier tier, const Status& reserved) noexcept {
  return !reserved && reserved.error().code == Errc::out_of_memory &&
         reserved.error().lacks == tier;
}

constexpr auto spill_if_idle = [](MemoryHolder& sequence) {
  return sequence.is_idle() && sequence.spill_one();
};

}  // namespace

void Reclaimer::enter(MemoryHolder& sequence) {
  const std::lock_guard lock(mutex_);
  sequence.last_used_ = ++uses_;
  sequences_.push_back(&sequence);
}

void Reclaimer::leave(MemoryHolder& sequence) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(sequences_, &sequence);
  }
  const std::lock_guard last(sequence.mutex);
}

void Reclaimer::note_use(MemoryHolder& sequence) {
  const std::lock_guard lock(mutex_);
  sequence.last_used_ = ++uses_;
}

Status Reclaimer::make_room(MemoryHolder& requester, FunctionRef<Status()> reserve, HostRoom room) {
  Status reserved = make_spare_room(reserve);
  for (;;) {
    if (lacks(Tier::device, reserved)) {
      if (!spill(requester)) return reserved;
    } else if (lacks(Tier::host, reserved) && host_.mover() != nullptr) {
      const Status sent = send_rows_away(requester, room);
      if (!sent) return tl::unexpected(reserved.error().while_doing(sent.error().message()));
    } else {
      return reserved;
    }
    reserved = reserve();
  }
}

Result<std::byte*> Reclaimer::take_block(MemoryHolder& requester) {
  std::byte* block = nullptr;
  const auto take = [&]() -> Status {
    TERRACE_ASSIGN(block, pools_.blocks->take());
    return {};
  };
  const Status taken = make_room(requester, take);
  if (taken) return block;
  return tl::unexpected(taken.error().while_doing("rows that are attended to"));
}

Status Reclaimer::make_spare_room(FunctionRef<Status()> reserve) {
  Status reserved = reserve();
  // Once: what a failed try gives back to the pools could be trimmed for ever.
  if (lacks(Tier::host, reserved)) {
    const bool released = pools_.steps.release();
    if (host_.pages().trim() > 0 || released) reserved = reserve();
  }
  if (lacks(Tier::device, reserved) && pools_.trim()) reserved = reserve();
  return reserved;
}

bool Reclaimer::exceeds_limit(Tier tier) const noexcept {
  const MemoryUsage usage = backend_.memory(tier);
  return usage.in_use > usage.limit;
}

Status Reclaimer::shrink(Tier tier) {
  const auto take = [&](MemoryHolder& other) {
    if (tier == Tier::device) return spill_if_idle(other);
    return other.may_send_rows_away() && other.send_rows_away({}).value_or(0) > 0;
  };
  bool may_take = tier == Tier::device || host_.mover() != nullptr;
  do {
    pools_.trim();
    host_.pages().trim();
    if (!exceeds_limit(tier)) return {};
    may_take = may_take && take_from_other(nullptr, take);
  } while (may_take);
  const MemoryUsage usage = backend_.memory(tier);
  return fail(Errc::out_of_memory, "{}.memory is {}, {} in use: close or pause a sequence",
              to_string(tier), format_size(usage.limit), format_size(usage.in_use));
}

bool Reclaimer::spill(MemoryHolder& requester) {
  const bool spilled = requester.spill_one() || take_from_other(&requester, spill_if_idle);
  pools_.trim();
  return spilled;
}

bool Reclaimer::clear_region(MemoryHolder& requester) {
  // Some have pages that cannot leave now: the newest of a sequence, or those of a step.
  constexpr std::size_t tries = 8;
  const std::vector<std::uint32_t> sparse = host_.pages().sparse_regions();
  const auto clear = [&](std::uint32_t region) {
    const RowsToSend rows{.region = region};
    std::size_t left = requester.send_rows_away(rows).value_or(0);
    take_from_other(&requester, [&](MemoryHolder& other) {
      if (other.may_send_rows_away()) left += other.send_rows_away(rows).value_or(0);
      return false;  // go on with the next one
    });
    return left > 0 && host_.pages().trim() > 0;
  };
  return std::ranges::any_of(std::span(sparse).first(std::min(sparse.size(), tries)), clear);
}

Status Reclaimer::send_rows_away(MemoryHolder& requester, HostRoom room) {
  if (room == HostRoom::any && clear_region(requester)) return {};
  Status refused = fail(Errc::out_of_memory, "all rows on the host are in use");
  const auto send = [&](MemoryHolder& sequence, bool patient) {
    const Result<std::size_t> sent = sequence.send_rows_away({.patient = patient});
    if (!sent) refused = tl::unexpected(sent.error());
    return sent.value_or(0) > 0;
  };
  const auto send_others = [&](bool patient) {
    return take_from_other(&requester, [&](MemoryHolder& other) {
      return other.may_send_rows_away() && send(other, patient);
    });
  };
  bool any = false;
  for (const bool patient : {false, true}) {
    any = any || send(requester, patient) || send_others(patient);
  }
  return any ? Status{} : refused;
}

bool Reclaimer::take_from_other(const MemoryHolder* requester,
                                FunctionRef<bool(MemoryHolder&)> take) {
  std::vector<MemoryHolder*> others;
  {
    const std::lock_guard lock(mutex_);
    others = sequences_;
    std::ranges::sort(others, {}, [](const MemoryHolder* other) { return other->last_used_; });
  }
  return std::ranges::any_of(others, [&](MemoryHolder* other) {
    std::unique_lock<std::mutex> call;
    {
      const std::lock_guard lock(mutex_);
      // It may have gone meanwhile. A call of its own may be under way; once that is taken the
      // sequence cannot go.
      if (other == requester || std::ranges::find(sequences_, other) == sequences_.end())
        return false;
      call = std::unique_lock(other->mutex, std::try_to_lock);
    }
    return call.owns_lock() && take(*other);
  });
}

}  // namespace terrace
