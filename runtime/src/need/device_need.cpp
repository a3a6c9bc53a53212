#include "device_need.hpp"

#include <algorithm>

#include "cluster_cache_need.hpp"
#include "layer/selection_lists.hpp"
#include "memory/reserve_buffer.hpp"
#include "row_cache_need.hpp"
#include "rows/pointer_table.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/runtime/step_room.hpp"

namespace terrace {

std::size_t DeviceNeed::slabs(std::size_t blocks) const noexcept {
  return align_up(blocks, slab_blocks) * align_up(terms_.plan.block_bytes(), 64);
}

std::size_t DeviceNeed::rows() const noexcept {
  // Tables have room to grow; a layer's is there twice while it grows.
  return slabs(blocks_.held()) +
         (terms_.shape().layers + 1) * PointerTable::bytes_for(blocks_.all());
}

std::size_t DeviceNeed::workspace() const noexcept {
  const KvShape& shape = terms_.shape();
  const std::size_t bytes =
      sizeof(float) * attention_scratch_floats(shape, terms_.attention_entries());
  return terms_.may_select() ? bytes + select_workspace() : bytes;
}

std::size_t DeviceNeed::select_workspace() const noexcept {
  const KvShape& shape = terms_.shape();
  const RetrievalTraits& traits = terms_.traits();
  const std::size_t room = with_room(terms_.asked.tokens);
  const std::size_t pseudo = terms_.lists() * terms_.pseudo_entries();
  std::size_t bytes = pseudo * (sizeof(std::byte*) + sizeof(float));
  if (traits.estimates_rest) bytes += pseudo * shape.row_bytes();
  if (traits.lists == ListScope::query_head) {
    bytes += (shape.kv_heads * room + 1) * sizeof(std::uint32_t);
  }
  // A cache of clusters takes over fetched rows, so that each layer fetches into its own memory.
  const bool of_layers = terms_.plan.caches(CacheGranularity::cluster);
  bytes += listed_rows() * shape.row_bytes() * (of_layers ? shape.layers : 1);
  bytes += listed_rows() * (sizeof(std::byte*) + sizeof(MissedRow));
  if (traits.gives_logit_bias) bytes += listed_rows() * sizeof(float);
  return bytes + terms_.plan.policy->select_scratch_floats(shape, room) * sizeof(float);
}

std::size_t DeviceNeed::selections() const noexcept {
  if (!terms_.may_select()) return 0;
  return terms_.shape().layers * terms_.single_tokens() *
         selection_size(terms_.plan, terms_.list_rows()).bytes();
}

std::size_t DeviceNeed::indexes() const noexcept {
  const std::size_t chunks = terms_.chunks();
  if (chunks == 0) return 0;
  // Streamed ones have two places.
  const bool streamed = terms_.options().index_residency == IndexResidency::host;
  const std::size_t copies = streamed ? 2 : terms_.sparse_layers();
  return copies * (terms_.index_bytes(chunks) + PointerTable::bytes_for(chunks));
}

std::size_t DeviceNeed::weights() const noexcept {
  if (!terms_.wants_weights()) return 0;
  const KvShape& shape = terms_.shape();
  const std::size_t columns = terms_.weight_columns();
  const std::size_t lists = terms_.plan.retention->traits().score_heads(shape);
  // One place is copied to the host while an op writes the other.
  return sizeof(float) * (2 * lists * columns + attention_weights_scratch_floats(shape, columns));
}

template <typename LayerNeed>
std::size_t DeviceNeed::slotted_cache(const LayerNeed& layer) const noexcept {
  // Where rows stay that fit, the cache has what is left over.
  const bool left_over = terms_.options().placement == Placement::resident_first;
  const std::size_t blocks = left_over ? 0 : terms_.sparse_layers() * layer.blocks();
  return slabs(blocks) + terms_.sparse_layers() * layer.tables() + layer.growing();
}

std::size_t DeviceNeed::cache() const noexcept {
  const std::size_t slots = blocks_.cache_slots();
  if (terms_.plan.caches(CacheGranularity::cluster)) {
    return slots == 0 ? 0 : slotted_cache(ClusterCacheNeed(terms_, slots));
  }
  if (terms_.plan.caches(CacheGranularity::row)) {
    return slots == 0 ? 0 : slotted_cache(RowCacheNeed(terms_, slots));
  }
  return slabs(blocks_.cached());
}

std::size_t DeviceNeed::step() const noexcept {
  const KvShape& shape = terms_.shape();
  const std::size_t held = blocks_.held();
  std::size_t bytes = slabs(held + blocks_.in_step()) - slabs(held);
  bytes += blocks_.tiled_layers() * with_room(blocks_.all()) * sizeof(std::byte*);
  if (terms_.asked.queries == Dtype::f32) return bytes;
  const std::size_t tokens = std::max(terms_.asked.step_tokens, terms_.asked.draft_tokens);
  // Queries, and outputs.
  return bytes + 2 * tokens * shape.query_heads * shape.head_dim * sizeof(float);
}

std::size_t DeviceNeed::shared() const noexcept {
  const KvShape& shape = terms_.shape();
  const std::size_t block_tokens = terms_.options().block_tokens;
  // Beside a member whose rows pass by tiles, a shorter one may bring the larger piece.
  const bool streams = !terms_.traits().keeps_everything;
  return step_room({.shape = shape,
                    .block_tokens = block_tokens,
                    .device_memory = terms_.device_memory,
                    .tokens = std::max(terms_.asked.step_tokens, terms_.asked.draft_tokens),
                    .rows = streams ? blocks_.all() * block_tokens : 0})
      .bytes(shape);
}

}  // namespace terrace
