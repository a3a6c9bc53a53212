// Finding selected rows: see terrace/kernels/rows.hpp.
#include <algorithm>
#include <limits>

#include "row_slots.hpp"
#include "terrace/kernels/row_address.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::kernels::host {
namespace {

/// The rows that this call has already missed. Not used under kv_head scope, because lists do not
/// overlap.
class SeenMisses {
 public:
  explicit SeenMisses(const ResolveRows& op) noexcept
      : op_(op), active_(op.scope == ListScope::query_head && op.seen != nullptr) {
    if (!active_) return;
    const std::size_t most = op.shape.query_heads * op.id_stride;
    if (std::numeric_limits<std::uint32_t>::max() - *op.seen_epoch < most) {
      std::fill_n(op.seen, op.shape.kv_heads * op.seen_stride, 0U);
      *op.seen_epoch = 0;
    }
  }

  /// Returns the staging row of an earlier miss of this call, or null.
  [[nodiscard]] std::byte* find(std::size_t head, std::uint32_t position) const noexcept {
    if (!active_) return nullptr;
    const std::uint32_t entry = op_.seen[head * op_.seen_stride + position];
    return entry > *op_.seen_epoch ? op_.missed[entry - *op_.seen_epoch - 1].target : nullptr;
  }

  /// Remembers that miss number `number` of this call, from 0, is this row.
  void remember(std::size_t head, std::uint32_t position, std::uint32_t number) noexcept {
    if (active_) op_.seen[head * op_.seen_stride + position] = *op_.seen_epoch + number + 1;
  }

  /// Makes all entries old.
  void finish(std::uint32_t misses) noexcept {
    if (active_) *op_.seen_epoch += misses;
  }

 private:
  const ResolveRows& op_;
  bool active_;
};

/// The lists of one KV head.
class HeadResolver {
 public:
  HeadResolver(const ResolveRows& op, std::uint32_t head, SeenMisses& seen) noexcept
      : op_(op), head_(head), seen_(seen), slots_(op, head) {}

  /// Finds the rows; those that are missed come after `misses` others.
  void resolve(std::uint32_t& misses) {
    const std::uint32_t before = misses;
    for_each_place([&](std::size_t place) { resolve_place(place, misses); });
    if (slots_.admit({op_.missed + before, misses - before}) > 0) {
      point_to_slots();
    }
    slots_.finish();
  }

 private:
  /// Calls visit(place) for the places of the head's lists, in their order.
  template <typename Visit>
  void for_each_place(Visit visit) const {
    const std::size_t lists = lists_per_kv_head(op_.shape, op_.scope);
    for (std::size_t list = head_ * lists; list < (head_ + 1) * lists; ++list) {
      for (std::size_t i = 0; i < op_.id_count[list]; ++i) visit(list * op_.id_stride + i);
    }
  }

  void resolve_place(std::size_t place, std::uint32_t& misses) {
    const std::uint32_t position = op_.ids[place];
    std::byte*& row = op_.rows[place];
    row = row_address(op_.shape, op_.resident, head_, position);
    if (row == nullptr) row = find_cached(position);
    if (row == nullptr) row = seen_.find(head_, position);
    if (row != nullptr) return;
    row = op_.staging + place * op_.shape.row_bytes();
    op_.missed[misses] = {.position = position, .head = head_, .target = row};
    seen_.remember(head_, position, misses++);
  }

  [[nodiscard]] std::byte* find_cached(std::uint32_t position) noexcept {
    const std::uint32_t number = cached_number(op_, head_, position);
    if (number == 0) return nullptr;
    slots_.note_found(number);
    return cached_row(op_.shape, op_.cached, number);
  }

  /// Missed rows that have slots lie there, not in staging rows. Those found before stay.
  void point_to_slots() noexcept {
    for_each_place([&](std::size_t place) {
      const std::uint32_t position = op_.ids[place];
      const std::uint32_t number = cached_number(op_, head_, position);
      if (number == 0 || row_address(op_.shape, op_.resident, head_, position)) return;
      op_.rows[place] = cached_row(op_.shape, op_.cached, number);
    });
  }

  const ResolveRows& op_;
  std::uint32_t head_;
  SeenMisses& seen_;
  HeadSlots slots_;
};

}  // namespace

void resolve_rows(const ResolveRows& op) {
  std::uint32_t misses = 0;
  SeenMisses seen(op);
  for (std::uint32_t head = 0; head < op.shape.kv_heads; ++head) {
    HeadResolver(op, head, seen).resolve(misses);
  }
  seen.finish(misses);
  *op.missed_count = misses;
}

}  // namespace terrace::kernels::host
