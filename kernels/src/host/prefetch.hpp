// Asking for memory ahead of its use.
#pragma once

#include <cstddef>

namespace terrace::kernels::host {

constexpr std::size_t line_bytes = 64;

/// Prefetches `count` bytes into all caches.
[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::size_t count) noexcept {
  for (std::size_t at = 0; at < count; at += line_bytes) __builtin_prefetch(from + at);
  // g++ takes a function that only prefetches for one without effect, and drops its calls.
  asm volatile("");
}

}  // namespace terrace::kernels::host
