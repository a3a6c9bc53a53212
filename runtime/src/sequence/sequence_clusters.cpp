// What the resident cache does with a step where it keeps clusters: counting, refills, letting go.
// Blocks take part in attention where they lie; rows of cached clusters lie in slots and are found
// row by row, through a table that changes in the refill queue's order. What a step has missed of a
// cluster is copied from where it was staged: only the rest of the cluster crosses the link.
#include <algorithm>
#include <utility>

#include "../sequence_state.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {

std::size_t SequenceState::cluster_units(const LayerState& layer) const noexcept {
  const std::size_t clusters =
      layer.index.host.chunk_count() * runtime_.index_layout.chunk_clusters;
  return std::max<std::size_t>(1, clusters) * runtime_.shape().kv_heads;
}

Status SequenceState::reserve_slots(LayerState& layer, std::size_t length) {
  ClusterRoom room{.units = cluster_units(layer), .positions = length, .deadline = deadline()};
  room.slots = std::min(layer.cache->capacity_slots(), layer.slots.enough_for(room));
  // Refills under way use the tables that growing would move.
  if (!layer.slots.has_room(room)) TERRACE_TRY(wait(layer.refilled, deadline()));
  const Status reserved = layer.slots.reserve(*runtime_.backend, *refill_queue_, room);
  if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
  // No step fails for its cache: the layer goes without until there is room.
  drop_clusters(layer);
  release_unused_blocks(layer);
  layer.slots.reset();
  return {};
}

void SequenceState::read_members(LayerState& layer) {
  if (!layer.members_stale) return;
  IndexView index = layer.index.host.view(runtime_.index_layout, layer.index.tokens.begin);
  index.token_count = layer.index.tokens.size();
  layer.members.read(*runtime_.policy, runtime_.shape(), runtime_.index_layout, index);
  layer.members_stale = false;
}

void SequenceState::let_go(LayerState& layer, UnitKey unit) {
  layer.slots.remove(unit, layer.members.of(unit), unit % runtime_.shape().kv_heads);
}

void SequenceState::drop_clusters(LayerState& layer) {
  if (!caches_clusters() || layer.cache == nullptr) return;
  for (UnitKey unit = 0; unit < cluster_units(layer); ++unit) {
    if (layer.slots.holds(unit)) drop_copy(layer, unit);
  }
  layer.slots.clear();
}

bool SequenceState::release_unused_blocks(LayerState& layer) {
  const std::vector<std::byte*> unused = layer.slots.take_unused_blocks();
  for (std::byte* const block : unused) runtime_.give_cluster_block(block);
  return !unused.empty();
}

bool SequenceState::spill_clusters(LayerState& layer) {
  // Another sequence's queue may write a block as soon as it is free.
  if (!wait(layer.attended, deadline()) || !wait(layer.refilled, deadline())) return false;
  drop_clusters(layer);
  if (release_unused_blocks(layer)) return true;
  // The tables last: without them the layer has no cache until there is room for them again.
  const bool freed = layer.slots.has_tables();
  layer.slots.reset();
  return freed;
}

Result<Ticket> SequenceState::flush_slots(LayerState& layer, Queue& queue) {
  // What the last flush sent may still be read.
  TERRACE_TRY(wait(layer.refilled, deadline()));
  return layer.slots.flush(*runtime_.backend, queue, table(layer.host_blocks),
                           layer.staging.data());
}

Status SequenceState::await_slots(LayerState& layer) {
  // Behind changes that wait for the next step others would name the same rows twice.
  if (layer.slots.changed()) {
    TERRACE_ASSIGN(layer.refilled, flush_slots(layer, *refill_queue_));
  }
  return wait(layer.refilled, deadline());
}

Status SequenceState::send_slots(std::span<LayerState> layers) {
  if (!caches_clusters() || cache_sharers_ == 0) return {};
  const TimePoint begin = runtime_.backend->clock().now();
  for (LayerState& layer : layers) {
    // Without rows to fetch there is nothing to hide: the layer's next step makes the changes
    // itself, which takes less than to wake another queue.
    if (!layer.slots.needs_link()) continue;
    TERRACE_TRY(refill_queue_->wait_for(layer.attended));  // it may still read the slots
    TERRACE_ASSIGN(layer.refilled, flush_slots(layer, *refill_queue_));
  }
  counters_.upkeep += runtime_.backend->clock().now() - begin;
  return {};
}

Status SequenceState::publish_clusters(LayerState& layer, Queue& compute) {
  if (layer.cache == nullptr) return {};
  const TimePoint begin = runtime_.backend->clock().now();
  if (layer.clusters_renamed) {
    layer.cache->forget_all();
    layer.slots.clear();
  }
  TERRACE_TRY(compute.wait_for(layer.refilled));
  // Its end is that of the step, which waits for all of compute.
  if (layer.slots.changed()) TERRACE_TRY(flush_slots(layer, compute));
  counters_.upkeep += runtime_.backend->clock().now() - begin;
  return {};
}

void SequenceState::want_clusters(LayerState& layer) {
  const std::size_t slot_rows = cluster_slot_rows(runtime_.shape(), block_tokens());
  for (const UnitKey unit : units_touched_) {
    const bool hit = layer.slots.holds(unit);
    const std::uint32_t rows = count_unit(unit, hit);
    // Tokens may have joined an old cluster since, for want of places: they are fetched each time.
    const std::size_t size = hit ? layer.slots.rows_of(unit) : layer.members.of(unit).size();
    wanted_.push_back(
        {.unit = unit,
         .rows_wanted = rows,
         .slots = static_cast<std::uint32_t>(divide_up(size, slot_rows)),
         .refill_rows = static_cast<std::uint32_t>(size - std::min<std::size_t>(size, rows))});
  }
}

void SequenceState::count_clusters(LayerState& layer) {
  wanted_clusters_.clear();
  if (runtime_.index_layout.chunk_clusters == 0) return;
  read_members(layer);
  if (rows_per_unit_.size() < layer.members.units()) rows_per_unit_.resize(layer.members.units());
  units_touched_.clear();
  const TokenRange cacheable = cacheable_positions(layer);
  const std::uint32_t* position = positions_.data();
  for (std::size_t head = 0; head < head_counts_.size(); ++head) {
    const std::span<const UnitKey> units = layer.members.units_of(head);
    for (const std::uint32_t* const end = position + head_counts_[head]; position < end;
         ++position) {
      if (!cacheable.contains(*position)) continue;
      const UnitKey unit = units[*position - layer.members.first_position()];
      if (rows_per_unit_[unit]++ == 0) units_touched_.push_back(unit);
    }
  }
  std::ranges::sort(units_touched_);
  for (const UnitKey unit : units_touched_) {
    wanted_clusters_.push_back(
        {.unit = unit,
         .rows_wanted = std::exchange(rows_per_unit_[unit], 0U),
         .size_rows = static_cast<std::uint32_t>(layer.members.of(unit).size())});
  }
}

void SequenceState::note_rows(const LayerState& layer) {
  start_noting_rows(layer);
  const SelectionBuffers buffers = selection_buffers(layer.selection_host);
  for (std::size_t list = 0; list < lists(); ++list) {
    SeenRow* const seen = seen_rows(layer, list / group());
    const std::size_t first = list * list_rows();
    for (std::size_t i = first; i < first + buffers.counts[list]; ++i) {
      note_row(seen[buffers.ids[i]], i);
    }
  }
}

void SequenceState::update_clusters(LayerState& layer) {
  for (const UnitKey unit : plan_.evicted) let_go(layer, unit);
  counters_.cache.evicted += plan_.evicted.size();
  if (plan_.admitted.empty()) return;
  // Where a row was staged is looked up only for what is admitted: few steps pay for it.
  if (group() == 1) note_rows(layer);
  const TokenRange cacheable = cacheable_positions(layer);
  for (const std::uint32_t admitted : plan_.admitted) {
    const offload::WantedUnit& wanted = wanted_[admitted];
    const std::size_t head = wanted.unit % runtime_.shape().kv_heads;
    const SeenRow* const seen = seen_rows(layer, head);
    const Status placed = layer.slots.place(
        wanted.unit, layer.members.of(wanted.unit), head,
        [&](std::uint32_t position) {
          const bool missed = seen[position].epoch == row_epoch_ && cacheable.contains(position);
          return missed ? seen[position].place + 1 : 0;
        },
        [&] { return runtime_.take_cluster_block(); });
    if (!placed) {
      // Device memory is smaller than the cache was meant to be: live with what fits.
      layer.cache->drop(wanted.unit);
      unplaced_.push_back(wanted.unit);
      ++counters_.cache.refused;
      continue;
    }
    ++counters_.cache.admitted;
    counters_.bytes.refill += wanted.refill_rows * runtime_.shape().row_bytes();
  }
}

void SequenceState::drop_some_clusters(LayerState& layer, double share, Rng& rng) {
  for (UnitKey unit = 0; unit < layer.members.units(); ++unit) {
    if (!layer.slots.holds(unit) || rng.uniform() >= share) continue;
    drop_copy(layer, unit);
    let_go(layer, unit);
  }
}

}  // namespace terrace
