#include "cluster_cache_need.hpp"

#include <algorithm>
#include <bit>

#include "memory/device_words.hpp"
#include "rows/pointer_table.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

ClusterCacheNeed::ClusterCacheNeed(const NeedTerms& terms, std::size_t slots) noexcept
    : terms_(terms),
      slot_rows_(cluster_slot_rows(terms.shape(), terms.options().block_tokens)),
      slots_per_block_(terms.options().block_tokens * terms.shape().kv_heads / slot_rows_) {
  const std::size_t heads = terms.shape().kv_heads;
  const std::size_t units =
      std::max<std::size_t>(1, terms.chunks() * terms.layout().chunk_clusters);
  slots_ = std::min(slots, units * heads + terms.asked.tokens * heads / slot_rows_);
}

std::size_t ClusterCacheNeed::blocks() const noexcept {
  return divide_up(slots_, slots_per_block_);
}

std::size_t ClusterCacheNeed::block_table() const noexcept {
  return PointerTable::bytes_for(divide_up(std::bit_ceil(slots_), slots_per_block_));
}

std::size_t ClusterCacheNeed::numbers() const noexcept {
  const std::size_t positions = terms_.asked.tokens + 1;
  const std::size_t room = positions + positions / 4 + 256;
  return slots_ == 0 ? 0 : room * terms_.shape().kv_heads * sizeof(std::uint32_t);
}

std::size_t ClusterCacheNeed::host() const noexcept {
  // Rows that come and go in a step: as many as are selected, or all that the cache has.
  const std::size_t changes =
      2 * std::max(terms_.lists() * terms_.list_rows(), slots_ * slot_rows_);
  return DeviceWords::zero_bytes_for(numbers()) + 2 * block_table() +
         3 * changes * sizeof(CachedRowChange) / 2;
}

}  // namespace terrace
