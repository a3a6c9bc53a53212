// The address of a token's row in a table of blocks.
//
// Blocks are laid out as terrace/core/shape.hpp says: [kv_heads, block_tokens] rows, a row being
// the key and the value of one token of one head, side by side.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::kernels {

/// Returns the bytes of half a row: a key, or a value.
constexpr std::size_t row_half_bytes(const KvShape& shape) noexcept {
  return shape.head_dim * size_bytes(shape.dtype);
}

/// Returns how far into its block the row of (position, KV head) lies.
///
/// Units    bytes
constexpr std::size_t row_offset(const KvShape& shape, const BlockTable& table, std::size_t head,
                                 std::size_t position) noexcept {
  return (head * table.block_tokens + position % table.block_tokens) * shape.row_bytes();
}

/// Returns the row of (position, KV head), or null if its block is absent.
inline std::byte* row_address(const KvShape& shape, const BlockTable& table, std::size_t head,
                              std::size_t position) noexcept {
  std::byte* block = table.blocks[position / table.block_tokens];
  return block == nullptr ? nullptr : block + row_offset(shape, table, head, position);
}

/// Returns the cached row of a number, as CachedRows counts them: 1 is the first.
inline std::byte* cached_row(const KvShape& shape, const CachedRows& cached,
                             std::uint32_t number) noexcept {
  const std::size_t row = number - std::size_t{1};
  return cached.blocks[row / cached.block_rows] + row % cached.block_rows * shape.row_bytes();
}

/// Returns where a row's number lies.
constexpr std::size_t cached_place(const KvShape& shape, std::size_t head,
                                   std::size_t position) noexcept {
  return position * shape.kv_heads + head;
}

/// Returns the number of a row among the cached ones, or 0.
inline std::uint32_t cached_number(const ResolveRows& op, std::size_t head,
                                   std::uint32_t position) noexcept {
  return op.cached.numbers == nullptr ? 0
                                      : op.cached.numbers[cached_place(op.shape, head, position)];
}

/// Returns where a row lies in device memory, in its block or among cached rows, or null.
inline std::byte* find_row(const ResolveRows& op, std::size_t head,
                           std::uint32_t position) noexcept {
  std::byte* const row = row_address(op.shape, op.resident, head, position);
  if (row != nullptr) return row;
  const std::uint32_t number = cached_number(op, head, position);
  return number == 0 ? nullptr : cached_row(op.shape, op.cached, number);
}

/// Whether a change brings a row across the link.
constexpr bool crosses_link(const CachedRowChange& change) noexcept {
  return change.number != 0 && change.staged == 0;
}

}  // namespace terrace::kernels
