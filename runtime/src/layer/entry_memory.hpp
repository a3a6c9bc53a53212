// Memory for the entries that a layer keeps, in one tier: rows, and what attention reads beside
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

/// Parts of the memory, one after the other. Rows come first, the largest part: for each KV head as
/// many as it has room for. The parts that attention reads beside them have as many places each.
struct EntryLayout {
  EntryLayout() = default;
  /// `room` [kv_heads]: entries of each KV head.
  EntryLayout(const KvShape& of, std::span<const std::size_t> room)
      : shape(of), capacity(std::ranges::max(room)), first_row(room.size() + 1) {
    std::partial_sum(room.begin(), room.end(), first_row.begin() + 1);
  }

  KvShape shape;
  std::size_t capacity = 0;            ///< entries of the KV head that has most
  std::vector<std::size_t> first_row;  ///< [kv_heads + 1]

  [[nodiscard]] std::size_t places() const noexcept { return shape.kv_heads * capacity; }
  [[nodiscard]] std::size_t pointers_at() const noexcept {
    return align_up(first_row.back() * shape.row_bytes(), 64);
  }
  [[nodiscard]] std::size_t bias_at() const noexcept {
    return pointers_at() + places() * sizeof(std::byte*);
  }
  [[nodiscard]] std::size_t positions_at() const noexcept {
    return bias_at() + places() * sizeof(float);
  }
  [[nodiscard]] std::size_t counts_at() const noexcept {
    return positions_at() + places() * sizeof(std::uint32_t);
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return counts_at() + shape.kv_heads * sizeof(std::uint32_t);
  }
  bool operator==(const EntryLayout&) const = default;
};

class EntryMemory {
 public:
  /// Allocates memory of that layout; its contents stay only where the layout was the same. Errors:
  /// out_of_memory; no memory is held then.
  Status reserve(Backend& backend, const EntryLayout& layout, Tier tier);
  void reset() noexcept {
    memory_.reset();
    layout_ = {};
  }

  [[nodiscard]] const EntryLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] bool is_there() const noexcept { return memory_.data() != nullptr; }

  [[nodiscard]] std::byte* row(std::size_t head, std::size_t entry) const noexcept {
    return memory_.data() + (layout_.first_row[head] + entry) * layout_.shape.row_bytes();
  }
  /// [kv_heads, capacity]: where the rows lie of the memory that attention reads.
  [[nodiscard]] const std::byte** pointers() const noexcept {
    return at<const std::byte*>(layout_.pointers_at());
  }
  [[nodiscard]] float* bias() const noexcept { return at<float>(layout_.bias_at()); }
  /// [kv_heads, capacity]: of the last token of each.
  [[nodiscard]] std::uint32_t* positions() const noexcept {
    return at<std::uint32_t>(layout_.positions_at());
  }
  [[nodiscard]] std::uint32_t* counts() const noexcept {
    return at<std::uint32_t>(layout_.counts_at());
  }

  /// Lists the copies of the first `counts` rows of each KV head from memory of the same layout,
  /// and of all parts after the rows.
  void list_copies(const EntryMemory& from, std::vector<CopyExtent>& extents) const;

 private:
  template <typename T>
  [[nodiscard]] T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }

  EntryLayout layout_;
  Buffer memory_;
};

}  // namespace terrace
