// Finding selected rows: see terrace/kernels/rows.hpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "terrace/kernels/row_address.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::kernels::host {
namespace {

/// Which rows this call has already missed. Under kv_head scope nobody asks: lists do not overlap.
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

/// Rows fetched before the step, list by list in the order of their positions.
class EarlyRows {
 public:
  explicit EarlyRows(const ResolveEarlyRows& op) noexcept
      : op_(op), row_bytes_(op.resolve.shape.row_bytes()) {
    places_ = list_count(op.resolve.shape, op.resolve.scope) * op.resolve.id_stride;
    std::fill_n(op.early_used, places_, std::uint8_t{0});
  }

  /// Returns the row of a position of a list, or null. Positions of a list come in rising order.
  [[nodiscard]] std::byte* find(std::size_t list, std::uint32_t position) noexcept {
    if (op_.early_ids == nullptr) return nullptr;
    if (list != list_) {
      list_ = list;
      next_ = 0;
    }
    const std::size_t first = list * op_.resolve.id_stride;
    while (next_ < op_.early_count[list] && op_.early_ids[first + next_] < position) ++next_;
    if (next_ == op_.early_count[list] || op_.early_ids[first + next_] != position) return nullptr;
    std::byte* const row = op_.early_rows[first + next_];
    // What was in a device block then, and is no longer, was not fetched.
    const auto at = static_cast<std::size_t>(row - op_.early_staging);
    if (row < op_.early_staging || at >= places_ * row_bytes_) return nullptr;
    if (op_.early_used[at / row_bytes_] == 0) ++distinct_;
    op_.early_used[at / row_bytes_] = 1;
    ++useful_;
    return row;
  }

  [[nodiscard]] std::uint32_t useful() const noexcept { return useful_; }
  [[nodiscard]] std::uint32_t fetched() const noexcept {
    return op_.early_ids == nullptr ? 0 : *op_.early_missed;
  }
  [[nodiscard]] std::uint32_t wasted() const noexcept { return fetched() - distinct_; }

 private:
  const ResolveEarlyRows& op_;
  std::size_t row_bytes_;
  std::size_t places_ = 0;
  std::size_t list_ = 0;
  std::size_t next_ = 0;
  std::uint32_t useful_ = 0;
  std::uint32_t distinct_ = 0;
};

/// `find_early` returns where a row of a list lies that a step fetched before, or null.
template <typename FindEarly>
void resolve(const ResolveRows& op, FindEarly find_early) {
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
      if (row == nullptr) row = find_early(list, position);
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

double cosine(const float* a, const float* b, std::size_t dims) noexcept {
  double product = 0;
  double a_square = 0;
  double b_square = 0;
  for (std::size_t i = 0; i < dims; ++i) {
    product += double{a[i]} * double{b[i]};
    a_square += double{a[i]} * double{a[i]};
    b_square += double{b[i]} * double{b[i]};
  }
  return product / std::sqrt(a_square * b_square);
}

/// Whether a query of the list's heads has turned since the last step.
bool has_turned(const ResolveEarlyRows& op, std::size_t list) noexcept {
  const KvShape& shape = op.resolve.shape;
  const std::size_t heads = shape.query_heads / list_count(shape, op.resolve.scope);
  for (std::size_t head = list * heads; head < (list + 1) * heads; ++head) {
    const std::size_t at = head * shape.head_dim;
    const double likeness = cosine(op.query + at, op.last_query + at, shape.head_dim);
    if (!(likeness >= double{op.likeness_min})) return true;
  }
  return false;
}

}  // namespace

void resolve_rows(const ResolveRows& op) {
  resolve(op, [](std::size_t, std::uint32_t) -> std::byte* { return nullptr; });
}

void resolve_early_rows(const ResolveEarlyRows& op) {
  const KvShape& shape = op.resolve.shape;
  const std::size_t lists = list_count(shape, op.resolve.scope);
  const std::size_t group = lists_per_kv_head(shape, op.resolve.scope);
  *op.outcome = {};
  for (std::size_t list = 0; list < lists; ++list) {
    const bool corrected = op.early_ids == nullptr || has_turned(op, list);
    const std::size_t first = list * op.resolve.id_stride;
    const std::uint32_t* const source = (corrected ? op.resolve.ids : op.early_ids) + first;
    const std::size_t there = (corrected ? op.resolve.id_count : op.early_count)[list];
    op.id_count[list] =
        static_cast<std::uint32_t>(std::min(there, rows_of_head(op.count, list / group)));
    std::copy_n(source, op.id_count[list], op.ids + first);
    op.outcome->corrected += corrected ? 1 : 0;
  }
  ResolveRows attended = op.resolve;
  attended.ids = op.ids;
  attended.id_count = op.id_count;
  EarlyRows early(op);
  resolve(attended, [&early](std::size_t list, std::uint32_t position) {
    return early.find(list, position);
  });
  op.outcome->fetched = early.fetched();
  op.outcome->useful = early.useful();
  op.outcome->late = *op.resolve.missed_count;
  op.outcome->wasted = early.wasted();
  std::copy_n(op.query, shape.query_heads * shape.head_dim, op.last_query);
}

}  // namespace terrace::kernels::host
