// Memory for what a layer's step selects, on the device and as the host reads it afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/backend.hpp"

namespace terrace {

/// Where the parts of a selection lie in one tier.
struct SelectionBuffers {
  std::uint32_t* ids = nullptr;            ///< [lists, rows]
  std::uint32_t* counts = nullptr;         ///< [lists]
  std::uint32_t* missed_count = nullptr;   ///< [1]
  std::uint32_t* pseudo_counts = nullptr;  ///< [lists]; last
};

class SelectionLists {
 public:
  /// Bytes of a tier for `lists` lists of `rows` rows.
  [[nodiscard]] static constexpr std::size_t bytes_for(std::size_t lists,
                                                       std::size_t rows) noexcept {
    return (lists * (rows + 2) + 1) * sizeof(std::uint32_t);
  }
  /// Has room for `lists` lists of `rows` rows. Errors: out_of_memory.
  Status reserve(Backend& backend, std::size_t lists, std::size_t rows);

  [[nodiscard]] SelectionBuffers on_device() const noexcept { return parts_of(device_); }
  [[nodiscard]] SelectionBuffers on_host() const noexcept { return parts_of(host_); }

  /// The copy of the device's lists to the host; without the counts of pseudo-entries that
  /// attention writes there by itself.
  [[nodiscard]] CopyExtent to_host(bool with_pseudo_counts) const noexcept {
    const std::size_t left_out = with_pseudo_counts ? 0 : lists_ * sizeof(std::uint32_t);
    return {host_.data(), device_.data(), device_.bytes() - left_out};
  }

 private:
  [[nodiscard]] SelectionBuffers parts_of(const Buffer& memory) const noexcept;

  std::size_t lists_ = 0;
  std::size_t rows_ = 0;
  Buffer device_;
  Buffer host_;
};

}  // namespace terrace
