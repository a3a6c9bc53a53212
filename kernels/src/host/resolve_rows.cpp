// Finding selected rows: see terrace/kernels/rows.hpp.
#include <algorithm>
#include <limits>

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

}  // namespace

void resolve_rows(const ResolveRows& op) {
  const std::size_t lists = list_count(op.shape, op.scope);
  const std::size_t group = lists_per_kv_head(op.shape, op.scope);
  SeenMisses seen(op);
  std::uint32_t misses = 0;
  for (std::size_t list = 0; list < lists; ++list) {
    const std::size_t head = list / group;
    for (std::size_t i = 0; i < op.id_count[list]; ++i) {
      const std::size_t place = list * op.id_stride + i;
      const std::uint32_t position = op.ids[place];
      std::byte* row = find_row(op, head, position);
      if (row == nullptr) row = seen.find(head, position);
      if (row == nullptr) {
        row = op.staging + place * op.shape.row_bytes();
        op.missed[misses] = {
            .position = position, .head = static_cast<std::uint32_t>(head), .target = row};
        seen.remember(head, position, misses++);
      }
      op.rows[place] = row;
    }
  }
  seen.finish(misses);
  *op.missed_count = misses;
}

}  // namespace terrace::kernels::host
