// The address of a token's row: terrace/kernels/row_address.hpp, for device code.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::cuda {

/// Returns the row of (position, KV head), or null if its block is absent.
__device__ inline std::byte* row_place(const KvShape& shape, const BlockTable& table, unsigned head,
                                       unsigned position) {
  const auto block_tokens = static_cast<unsigned>(table.block_tokens);
  std::byte* const block = table.blocks[position / block_tokens];
  if (block == nullptr) return nullptr;
  const std::size_t row = static_cast<std::size_t>(head) * block_tokens + position % block_tokens;
  return block + row * shape.row_bytes();
}

/// Returns where the number of a cached row lies.
__device__ inline std::uint32_t* cached_number(const KvShape& shape, const CachedRows& cached,
                                               unsigned head, unsigned position) {
  return cached.numbers + static_cast<std::size_t>(position) * shape.kv_heads + head;
}

/// Returns the cached row of a number that is not 0.
__device__ inline std::byte* cached_place(const KvShape& shape, const CachedRows& cached,
                                          std::uint32_t number) {
  const auto block_rows = static_cast<unsigned>(cached.block_rows);
  const unsigned row = number - 1;
  return cached.blocks[row / block_rows] + row % block_rows * shape.row_bytes();
}

}  // namespace terrace::kernels::cuda
