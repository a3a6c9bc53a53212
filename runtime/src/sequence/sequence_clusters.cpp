// What the resident cache does with a step where it keeps clusters: counting, refills, letting go.
// Blocks take part in attention where they lie; rows of cached clusters lie in slots and are found
// row by row, through a table that changes in the refill queue's order. What a step has missed of a
// cluster is copied from where it was staged: only the rest of the cluster crosses the link.
#include <algorithm>
#include <utility>

#include "../sequence_state.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {

std::size_t SequenceState::cluster_units(const LayerState& layer) const noexcept {
  const std::size_t clusters =
      layer.index.host.chunk_count() * runtime_.index_layout.chunk_clusters;
  return std::max<std::size_t>(1, clusters) * runtime_.shape().kv_heads;
}

Status SequenceState::reserve_slots(LayerState& layer, std::size_t length) {
  // What a step wants may come, and as much may go for it.
  ClusterRoom room{.units = cluster_units(layer),
                   .positions = length,
                   .changes = 2 * lists() * list_rows(),
                   .deadline = deadline()};
  room.slots = std::min(layer.cache->capacity_slots(), layer.slots.enough_for(room));
  // Refills under way use the tables that growing would move.
  if (!layer.slots.has_room(room)) TERRACE_TRY(wait(layer.refilled, deadline()));
  const auto reserve = [&] { return layer.slots.reserve(*runtime_.backend, *refill_queue_, room); };
  const auto fits = [](const Status& reserved) {
    return reserved || reserved.error().code != Errc::out_of_memory;
  };
  Status reserved = reserve();
  // Blocks that nobody has filled go before the tables that rows are found by.
  if (!fits(reserved) && runtime_.trim_pools()) reserved = reserve();
  if (fits(reserved)) return reserved;
  give_up_slots(layer);
  return {};
}

void SequenceState::give_up_slots(LayerState& layer) {
  if (drop_clusters(layer)) report_loss();
  release_unused_blocks(layer);
  layer.slots.reset();
}

void SequenceState::reserve_cluster_blocks(std::size_t length) {
  if (!caches_clusters() || cache_sharers_ == 0) return;
  // Where all is kept that fits, caches have what is left over.
  if (runtime_.options.placement == Placement::resident_first) return;
  const std::size_t rows = length * runtime_.shape().kv_heads;
  std::size_t blocks = 0;
  for (const LayerState& layer : layers_) {
    const std::size_t slots = layer.cache->capacity_slots();
    blocks += layer.slots.missing_blocks(std::min<std::size_t>(slots, layer.slots.slots_for(rows)));
  }
  runtime_.reserve_cluster_blocks(blocks);
}

void SequenceState::read_members(LayerState& layer) {
  if (!layer.members_stale) return;
  IndexView index = layer.index.host.view(runtime_.index_layout, layer.index.tokens.begin);
  index.token_count = layer.index.tokens.size();
  layer.members.read(*runtime_.policy, runtime_.shape(), runtime_.index_layout, index);
  layer.members_stale = false;
}

void SequenceState::let_go(LayerState& layer, UnitKey unit) {
  layer.slots.remove(unit, layer.members.of(unit));
}

bool SequenceState::drop_clusters(LayerState& layer) {
  if (!caches_clusters() || layer.cache == nullptr) return false;
  const bool any = layer.cache->resident_units() > 0;
  layer.cache->drop_from(0);
  layer.slots.clear();
  return any;
}

bool SequenceState::release_unused_blocks(LayerState& layer) {
  const std::vector<std::byte*> unused = layer.slots.take_unused_blocks();
  for (std::byte* const block : unused) runtime_.give_cluster_block(block);
  return !unused.empty();
}

bool SequenceState::spill_clusters(LayerState& layer) {
  // Another sequence's queue may write a block as soon as it is free.
  if (!wait(layer.attended, deadline()) || !wait(layer.refilled, deadline())) return false;
  if (drop_clusters(layer)) report_loss();
  if (release_unused_blocks(layer)) return true;
  // The tables last: without them the layer has no cache until there is room for them again.
  const bool freed = layer.slots.has_tables();
  layer.slots.reset();
  return freed;
}

Result<Ticket> SequenceState::flush_slots(LayerState& layer, Queue& queue) {
  // What the last flush sent may still be read.
  TERRACE_TRY(wait(layer.refilled, deadline()));
  const Result<Ticket> flushed =
      layer.slots.flush(*runtime_.backend, queue, table(layer.host_blocks), layer.staging.data());
  if (flushed || flushed.error().code != Errc::out_of_memory) return flushed;
  TERRACE_TRY(wait(layer.attended, deadline()));  // it may still read the slots
  give_up_slots(layer);
  return Ticket{};
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
  count_upkeep(begin);
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
  count_upkeep(begin);
  return {};
}

void SequenceState::want_clusters(LayerState& layer) {
  for (const UnitKey unit : wanted_rows_.units()) {
    const bool hit = layer.slots.holds(unit);
    offload::WantedUnit wanted{.unit = unit, .rows_wanted = count_unit(unit, hit)};
    if (!hit) {
      const std::size_t size = layer.members.of(unit).size();
      wanted.slots = layer.slots.slots_for(size);
      wanted.refill_rows = static_cast<std::uint32_t>(size) - wanted.rows_wanted;
    }
    wanted_.push_back(wanted);
  }
}

void SequenceState::count_clusters(LayerState& layer) {
  wanted_clusters_.clear();
  if (runtime_.index_layout.chunk_clusters == 0) return;
  read_members(layer);
  wanted_rows_.begin(layer.members.units(), positions_.size());
  const TokenRange cacheable = cacheable_positions(layer);
  std::size_t end = 0;
  for (std::size_t head = 0; head < head_counts_.size(); ++head) {
    const std::span<const UnitKey> units = layer.members.units_of(head);
    std::size_t i = end;
    for (end += head_counts_[head]; i < end; ++i) {
      if (!cacheable.contains(positions_[i])) continue;
      wanted_rows_.add(units[positions_[i] - layer.members.first_position()],
                       static_cast<std::uint32_t>(i));
    }
  }
  for (const UnitKey unit : wanted_rows_.units()) {
    wanted_clusters_.push_back(
        {.unit = unit,
         .rows_wanted = wanted_rows_.count(unit),
         .size_rows = static_cast<std::uint32_t>(layer.members.of(unit).size())});
  }
}

void SequenceState::list_rows_of(UnitKey unit, const LayerState& layer) {
  const std::uint32_t* const ids = selection_buffers(layer.selection_host).ids;
  unit_rows_.clear();
  wanted_rows_.for_each_place(unit, [&](std::uint32_t place) {
    unit_rows_.push_back({.position = ids[place], .staged = place + 1});
  });
  const std::span<const std::uint32_t> members = layer.members.of(unit);
  const std::size_t staged = unit_rows_.size();
  if (staged == members.size()) return;
  // The others are on the host.
  std::ranges::sort(unit_rows_, {}, &UnitRow::position);
  std::size_t next = 0;
  for (const std::uint32_t member : members) {
    if (next < staged && unit_rows_[next].position == member) {
      ++next;
    } else {
      unit_rows_.push_back({.position = member});
    }
  }
}

void SequenceState::let_go_of(LayerState& layer, std::span<const UnitKey> units) {
  for (const UnitKey unit : units) let_go(layer, unit);
  counters_.cache.evicted += units.size();
}

bool SequenceState::place_unit(LayerState& layer, const offload::WantedUnit& admitted) {
  const auto place = [&] {
    return layer.slots.place(admitted.unit, unit_rows_,
                             [&] { return runtime_.take_cluster_block(); });
  };
  list_rows_of(admitted.unit, layer);
  if (place()) return true;
  if (!displace_for(layer, admitted)) return false;
  let_go_of(layer, evicted_);
  const Status placed = place();
  TERRACE_ASSERT(placed.has_value());  // slots enough are free, and their blocks are there
  return true;
}

void SequenceState::update_clusters(LayerState& layer) {
  let_go_of(layer, plan_.evicted);
  for (const std::uint32_t admitted : plan_.admitted) {
    const offload::WantedUnit& wanted = wanted_[admitted];
    if (!place_unit(layer, wanted)) {
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
    layer.cache->drop(unit);
    let_go(layer, unit);
  }
}

}  // namespace terrace
