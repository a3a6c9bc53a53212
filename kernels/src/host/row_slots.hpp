// The slots of one KV head in a call of resolve_rows: see terrace/core/ops/rows.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::host {

/// Threads  one at a time; different heads side by side
class HeadSlots {
 public:
  /// Begins the head's part of the call, where the op has slots.
  HeadSlots(const ResolveRows& op, std::uint32_t head) noexcept;

  /// Notes that the call has found a cached row, of that number.
  void note_found(std::uint32_t number) noexcept;

  /// Gives slots to rows that were missed, the first ones first, as long as there are any that the
  /// call has not found: their targets are slots from now on. Returns how many rows have slots.
  std::size_t admit(std::span<MissedRow> missed) noexcept;

  /// Ends the head's part of the call.
  void finish() const noexcept;

 private:
  /// Slots that are older than `age`, and so many of that age.
  struct AgeLimit {
    std::uint32_t age = 0;
    std::size_t of_that_age = 0;
  };

  /// Calls visit(number) for each slot's cached row, in the order of the slots.
  template <typename Visit>
  void for_each_slot(Visit visit) const noexcept;
  /// Returns 0 for slots whose rows the call has found.
  [[nodiscard]] std::uint32_t age_of(std::uint32_t number) const noexcept;
  /// Returns what frees so many slots.
  [[nodiscard]] AgeLimit limit_for(std::size_t slots) const noexcept;
  /// Where the op keeps the number of the freed slot of that rank.
  [[nodiscard]] std::uint32_t& freed(std::size_t rank) const noexcept {
    const auto slot = static_cast<std::uint32_t>(rank);
    return op_.slots.each[slot_number(op_.shape, op_.cached, head_, slot) - 1].freed;
  }
  void free_slots(std::size_t count) noexcept;
  void evict(std::uint32_t number) noexcept;

  const ResolveRows& op_;
  std::uint32_t head_;
  std::uint32_t call_ = 0;  ///< from 1
  RowSlotCounts counts_;
};

}  // namespace terrace::kernels::host
