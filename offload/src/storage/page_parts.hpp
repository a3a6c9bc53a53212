// How a page is divided: into parts that are read, and have a checksum, each for itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "terrace/core/bytes.hpp"

namespace terrace::offload {

/// Some bytes of a page.
struct PagePiece {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  [[nodiscard]] std::uint64_t end() const noexcept { return begin + bytes; }
  bool operator==(const PagePiece&) const = default;
};

/// Parts have `part_bytes`, a power of two; in a page that would have more than count_max of them,
/// so many times two that it has no more: the record of a page then fits into a block. The last one
/// may have less.
class PageParts {
 public:
  static constexpr std::uint64_t count_max = 256;

  PageParts(std::uint64_t page_bytes, std::uint64_t part_bytes) noexcept
      : page_bytes_(page_bytes), part_bytes_(part_bytes) {
    while (count() > count_max) part_bytes_ *= 2;
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return divide_up(page_bytes_, part_bytes_); }
  [[nodiscard]] std::uint64_t part_bytes() const noexcept { return part_bytes_; }
  [[nodiscard]] PagePiece part(std::uint64_t number) const noexcept {
    const std::uint64_t begin = number * part_bytes_;
    return {begin, std::min(part_bytes_, page_bytes_ - begin)};
  }
  /// Returns the whole parts that some bytes of the page lie in.
  [[nodiscard]] PagePiece covering(const PagePiece& some) const noexcept {
    const std::uint64_t begin = some.begin / part_bytes_ * part_bytes_;
    return {begin, std::min(divide_up(some.end(), part_bytes_) * part_bytes_, page_bytes_) - begin};
  }

 private:
  std::uint64_t page_bytes_;
  std::uint64_t part_bytes_;
};

}  // namespace terrace::offload
