// The kinds of items that a selection gives weights to. They are numbered from 0, and each has
// some candidates, which lie behind those of the item before.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::cuda {

/// Each candidate has a weight of its own.
struct Tokens {
  static constexpr bool may_be_held = true;
  unsigned candidates;

  [[nodiscard]] __host__ __device__ unsigned count() const { return candidates; }
  /// Candidates that a KV head has.
  [[nodiscard]] __device__ unsigned candidates_of(unsigned) const { return candidates; }
  [[nodiscard]] __device__ unsigned size(unsigned) const { return 1; }
  /// The item of a candidate.
  [[nodiscard]] __device__ unsigned of(unsigned candidate) const { return candidate; }
  /// The first candidate of an item, or, of the item behind the last, how many there are.
  [[nodiscard]] __device__ unsigned first_of(unsigned item) const { return item; }
  /// The name of a candidate of a KV head; `begin` is the first position that may be chosen.
  [[nodiscard]] __device__ std::uint32_t position(std::size_t begin, unsigned, unsigned i) const {
    return static_cast<std::uint32_t>(begin) + i;
  }
};

/// Candidates have the weight of their page.
struct Pages {
  static constexpr bool may_be_held = false;  // pages may have both kinds of candidates
  unsigned candidates;
  unsigned page_tokens;
  unsigned page_count;
  unsigned skipped;  ///< tokens of the first page

  [[nodiscard]] __host__ __device__ unsigned count() const { return page_count; }
  [[nodiscard]] __device__ unsigned candidates_of(unsigned) const { return candidates; }
  [[nodiscard]] __device__ unsigned size(unsigned page) const {
    return first_of(page + 1) - first_of(page);
  }
  [[nodiscard]] __device__ unsigned of(unsigned candidate) const {
    return (skipped + candidate) / page_tokens;
  }
  [[nodiscard]] __device__ unsigned first_of(unsigned page) const {
    if (page == 0) return 0;
    return page == page_count ? candidates : page * page_tokens - skipped;
  }
  [[nodiscard]] __device__ std::uint32_t position(std::size_t begin, unsigned, unsigned i) const {
    return static_cast<std::uint32_t>(begin) + i;
  }
};

/// Candidates are those of a list: numbers in it, which are named by position in the end. Items
/// behind a head's last candidate have the lowest of weights.
struct Listed {
  static constexpr bool may_be_held = false;
  unsigned stride;
  const std::uint32_t* positions;  ///< [kv_heads, stride]
  const std::uint32_t* counts;     ///< [kv_heads]

  [[nodiscard]] __host__ __device__ unsigned count() const { return stride; }
  [[nodiscard]] __device__ unsigned candidates_of(unsigned head) const { return counts[head]; }
  [[nodiscard]] __device__ unsigned size(unsigned) const { return 1; }
  [[nodiscard]] __device__ unsigned of(unsigned candidate) const { return candidate; }
  [[nodiscard]] __device__ unsigned first_of(unsigned item) const { return item; }
  [[nodiscard]] __device__ std::uint32_t position(std::size_t, unsigned head, unsigned i) const {
    return positions[static_cast<std::size_t>(head) * stride + i];
  }
};

}  // namespace terrace::kernels::cuda
