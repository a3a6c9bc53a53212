// Memory for what a layer's step selects, on the device and as the host reads it afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/backend.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

class RuntimePlan;

/// Where the parts of a selection lie in one tier.
struct SelectionBuffers {
  std::uint32_t* ids = nullptr;            ///< [lists, rows]
  RowSlotCounts* slots = nullptr;          ///< [kv_heads], where the device keeps rows
  std::uint32_t* counts = nullptr;         ///< [lists]
  std::uint32_t* missed_count = nullptr;   ///< [1]
  std::uint32_t* pseudo_counts = nullptr;  ///< [lists]; last
};

struct SelectionSize {
  std::size_t lists = 0;
  std::size_t rows = 0;   ///< of a list
  std::size_t heads = 0;  ///< KV heads

  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return (lists * (rows + 2) + 1) * sizeof(std::uint32_t) + heads * sizeof(RowSlotCounts);
  }
};

/// Returns the size of a token's selection, of lists of so many rows.
[[nodiscard]] SelectionSize selection_size(const RuntimePlan& plan, std::size_t rows) noexcept;

class SelectionLists {
 public:
  /// Has room for so much. Errors: out_of_memory.
  Status reserve(Backend& backend, const SelectionSize& size);

  [[nodiscard]] SelectionBuffers on_device() const noexcept { return parts_of(device_); }
  [[nodiscard]] SelectionBuffers on_host() const noexcept { return parts_of(host_); }

  /// The copy of the device's lists to the host; without the counts of pseudo-entries that
  /// attention writes there by itself.
  [[nodiscard]] CopyExtent to_host(bool with_pseudo_counts) const noexcept {
    const std::size_t left_out = with_pseudo_counts ? 0 : size_.lists * sizeof(std::uint32_t);
    return {host_.data(), device_.data(), device_.bytes() - left_out};
  }

 private:
  [[nodiscard]] SelectionBuffers parts_of(const Buffer& memory) const noexcept;

  SelectionSize size_;
  Buffer device_;
  Buffer host_;
};

}  // namespace terrace
