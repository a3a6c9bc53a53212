#include "row_cache_need.hpp"

#include <algorithm>

#include "memory/reserve_buffer.hpp"
#include "rows/pointer_table.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

RowCacheNeed::RowCacheNeed(const NeedTerms& terms, std::size_t slots) noexcept
    : terms_(terms),
      blocks_(std::min(slots, divide_up(terms.asked.tokens + 1, terms.options().block_tokens))) {}

std::size_t RowCacheNeed::growing() const noexcept {
  const std::size_t heads = terms_.shape().kv_heads;
  const std::size_t numbers = with_room(terms_.asked.tokens + 1) * heads * sizeof(std::uint32_t);
  const std::size_t slots = blocks_ * terms_.options().block_tokens * heads * sizeof(RowSlot) +
                            heads * sizeof(std::uint32_t);
  return numbers + slots + slots / 4;
}

std::size_t RowCacheNeed::tables() const noexcept {
  return growing() + PointerTable::bytes_for(blocks_);
}

}  // namespace terrace
