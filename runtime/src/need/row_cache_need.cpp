#include "row_cache_need.hpp"

#include <algorithm>

#include "memory/device_words.hpp"
#include "memory/reserve_buffer.hpp"
#include "rows/pointer_table.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

RowCacheNeed::RowCacheNeed(const NeedTerms& terms, std::size_t slots) noexcept
    : terms_(terms),
      blocks_(std::min(slots, divide_up(terms.asked.tokens + 1, terms.options().block_tokens))) {}

std::size_t RowCacheNeed::numbers() const noexcept {
  return with_room(terms_.asked.tokens + 1) * terms_.shape().kv_heads * sizeof(std::uint32_t);
}

std::size_t RowCacheNeed::slots() const noexcept {
  const std::size_t heads = terms_.shape().kv_heads;
  const std::size_t bytes = blocks_ * terms_.options().block_tokens * heads * sizeof(RowSlot) +
                            heads * sizeof(std::uint32_t);
  return bytes + bytes / 4;
}

std::size_t RowCacheNeed::tables() const noexcept {
  return numbers() + slots() + PointerTable::bytes_for(blocks_);
}

std::size_t RowCacheNeed::growing() const noexcept { return tables(); }

std::size_t RowCacheNeed::host() const noexcept {
  // The table of blocks, and the one that it has outgrown.
  return DeviceWords::zero_bytes_for(numbers()) + DeviceWords::zero_bytes_for(slots()) +
         2 * PointerTable::bytes_for(blocks_);
}

}  // namespace terrace
