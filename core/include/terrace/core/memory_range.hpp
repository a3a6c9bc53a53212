// Which bytes an argument covers, to refuse arguments that overlap before work begins.
//
//   if (overlap(range_of(rows, row_floats), range_of(target, target_floats))) return fail(...);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace terrace {

/// Bytes [begin, end) as addresses, a device's, too. An empty range has 0 for both.
struct MemoryRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

/// Returns where `count` elements lie: nowhere without a pointer, and up to the last address where
/// they would go beyond it.
template <typename T>
[[nodiscard]] MemoryRange range_of(const T* first, std::size_t count) noexcept {
  if (first == nullptr || count == 0) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t most = (std::numeric_limits<std::uintptr_t>::max() - begin) / sizeof(T);
  return {begin, begin + std::min(count, most) * sizeof(T)};
}

/// Whether two ranges have a byte in common.
[[nodiscard]] constexpr bool overlap(const MemoryRange& a, const MemoryRange& b) noexcept {
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace terrace
