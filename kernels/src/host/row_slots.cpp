#include "row_slots.hpp"

#include <algorithm>
#include <array>

namespace terrace::kernels::host {

HeadSlots::HeadSlots(const ResolveRows& op, std::uint32_t head) noexcept : op_(op), head_(head) {
  if (op.slots.count > 0) call_ = op.slots.calls[head] + 1;
}

void HeadSlots::note_found(std::uint32_t number) noexcept {
  if (op_.slots.count == 0) return;
  std::uint32_t& found = op_.slots.each[number - 1].found;
  // Another list of the head may have found it.
  if (found != call_) ++counts_.found;
  found = call_;
}

template <typename Visit>
void HeadSlots::for_each_slot(Visit visit) const noexcept {
  const auto count = static_cast<std::uint32_t>(op_.slots.count);
  const auto head_rows = static_cast<std::uint32_t>(op_.cached.block_rows / op_.shape.kv_heads);
  for (std::uint32_t slot = 0; slot < count; slot += head_rows) {
    const std::uint32_t first = slot_number(op_.shape, op_.cached, head_, slot);
    const std::uint32_t rows = std::min(head_rows, count - slot);
    for (std::uint32_t number = first; number < first + rows; ++number) visit(number);
  }
}

std::uint32_t HeadSlots::age_of(std::uint32_t number) const noexcept {
  return std::min(call_ - op_.slots.each[number - 1].found, RowSlots::oldest_age);
}

HeadSlots::AgeLimit HeadSlots::limit_for(std::size_t slots) const noexcept {
  std::array<std::size_t, RowSlots::oldest_age + 1> of_age{};
  for_each_slot([&](std::uint32_t number) { ++of_age[age_of(number)]; });
  std::uint32_t age = RowSlots::oldest_age;
  while (of_age[age] < slots) slots -= of_age[age--];
  return {.age = age, .of_that_age = slots};
}

void HeadSlots::free_slots(std::size_t count) noexcept {
  AgeLimit limit = limit_for(count);
  std::size_t rank = 0;
  for_each_slot([&](std::uint32_t number) {
    const std::uint32_t age = age_of(number);
    if (age < limit.age || (age == limit.age && limit.of_that_age == 0)) return;
    if (age == limit.age) --limit.of_that_age;
    freed(rank++) = number;
    evict(number);
  });
}

void HeadSlots::evict(std::uint32_t number) noexcept {
  const std::uint32_t held = op_.slots.each[number - 1].held;
  if (held == 0) return;
  op_.cached.numbers[cached_place(op_.shape, head_, held - 1)] = 0;
  ++counts_.evicted;
}

std::size_t HeadSlots::admit(std::span<MissedRow> missed) noexcept {
  if (op_.slots.count == 0) return 0;
  const std::size_t count = std::min(missed.size(), op_.slots.count - counts_.found);
  if (count > 0) free_slots(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t number = freed(i);
    MissedRow& row = missed[i];
    op_.cached.numbers[cached_place(op_.shape, head_, row.position)] = number;
    RowSlot& slot = op_.slots.each[number - 1];
    slot.held = row.position + 1;
    slot.found = call_;
    row.target = cached_row(op_.shape, op_.cached, number);
  }
  counts_.admitted = static_cast<std::uint32_t>(count);
  return count;
}

void HeadSlots::finish() const noexcept {
  if (op_.slots.count == 0) return;
  op_.slots.calls[head_] = call_;
  op_.slot_counts[head_] = counts_;
}

}  // namespace terrace::kernels::host
