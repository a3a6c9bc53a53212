// Asking for memory ahead of its use.
#pragma once

#include <cstddef>

namespace terrace::kernels::host {

constexpr std::size_t line_bytes = 64;

/// The cache that gets a line, as __builtin_prefetch counts.
enum class Cache : int { second = 2, first = 3 };

/// Prefetches the line at `at`. The first cache keeps two dozen requests at a time and drops
/// further ones: if memory takes 100 ns to answer, that is half of its rate. So the first cache is
/// for code that reads more slowly than memory delivers.
template <Cache into = Cache::second>
[[gnu::always_inline]] inline void prefetch_line(const std::byte* at) noexcept {
  constexpr int to_read = 0;
  __builtin_prefetch(at, to_read, static_cast<int>(into));
  // g++ takes a function that only prefetches for one without effect, and drops its calls. And it
  // gathers requests that are to come one by one.
  asm volatile("");
}

/// Prefetches `count` bytes.
[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::size_t count) noexcept {
  for (std::size_t at = 0; at < count; at += line_bytes) prefetch_line(from + at);
}

}  // namespace terrace::kernels::host
