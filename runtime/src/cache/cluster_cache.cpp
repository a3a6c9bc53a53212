#include "cluster_cache.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "memory/reserve_buffer.hpp"
#include "terrace/core/assert.hpp"

namespace terrace {

ClusterCache::ClusterCache(const SequenceServices& services, Layer& layer, CacheScratch& scratch)
    : UnitCache(services, layer, scratch),
      slots_(services.plan.shape(), services.plan.block_tokens()) {}

std::size_t ClusterCache::unit_count() const noexcept {
  const std::size_t clusters =
      layer_.index.image.memory.chunk_count() * plan_.layout.chunk_clusters;
  return std::max<std::size_t>(1, clusters) * plan_.shape().kv_heads;
}

RowUnits ClusterCache::row_units() {
  layer_.index.clusters.read_members(plan_, layer_.index.image);
  return {.count = unit_count(), .clusters = &layer_.index.clusters.members()};
}

Status ClusterCache::reserve_memory(std::size_t length) {
  // All that a step wants may come, and as much may go for it.
  ClusterRoom room{.units = unit_count(),
                   .positions = length,
                   .changes = 2 * plan_.lists() * progress_.list_rows(),
                   .deadline = work_.deadline};
  room.slots = std::min(resident_->capacity_slots(), slots_.enough_for(room));
  // Refills under way use the tables that growing would move.
  if (!slots_.has_room(room)) {
    TERRACE_TRY(work_.await(WaitReason::refill, layer_.tickets().refilled));
  }
  const auto reserve = [&] { return slots_.reserve(work_.backend, work_.lanes.refill(), room); };
  // Unfilled blocks are released before the tables that rows are found by.
  const Status reserved = memory_.make_spare_room(reserve);
  if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
  give_up_slots();
  return {};
}

Status ClusterCache::reserve_staging(std::size_t bytes) {
  return reserve_buffer(work_.backend, staging_, bytes, Purpose::staging);
}

std::size_t ClusterCache::missing_blocks(std::size_t length) const {
  if (resident_ == nullptr) return 0;
  const std::size_t slots = slots_.slots_for(length * plan_.shape().kv_heads);
  return slots_.missing_blocks(std::min(resident_->capacity_slots(), slots));
}

Status ClusterCache::publish(Queue& compute) {
  if (resident_ == nullptr) return {};
  const TimePoint begin = work_.clock().now();
  if (epoch_ != layer_.index.clusters.epoch()) {
    resident_->forget_all();
    slots_.clear();
    epoch_ = layer_.index.clusters.epoch();
  }
  TERRACE_TRY(compute.wait_for(layer_.tickets().refilled));
  // Its end is that of the step, which waits for all of compute.
  if (slots_.changed()) TERRACE_TRY(flush(compute));
  work_.count_upkeep(begin);
  return {};
}

void ClusterCache::want_units() {
  const ClusterMembers& members = layer_.index.clusters.members();
  for (const UnitKey unit : scratch_.selection.rows().units()) {
    const bool hit = slots_.holds(unit);
    policies::WantedUnit wanted{.unit = unit, .rows_wanted = count_unit(unit, hit)};
    if (!hit) {
      const std::size_t size = members.of(unit).size();
      wanted.slots = slots_.slots_for(size);
      wanted.refill_rows = static_cast<std::uint32_t>(size) - wanted.rows_wanted;
    }
    scratch_.wanted.push_back(wanted);
  }
}

Status ClusterCache::carry_out() {
  evict(scratch_.plan.evicted);
  SequenceCounters& counters = work_.counters;
  for (const std::uint32_t admitted : scratch_.plan.admitted) {
    const policies::WantedUnit& wanted = scratch_.wanted[admitted];
    if (!place(wanted)) {
      ++counters.cache.refused;
      continue;
    }
    ++counters.cache.admitted;
    counters.bytes.refill += wanted.refill_rows * plan_.shape().row_bytes();
  }
  return {};
}

void ClusterCache::release_evicted(std::span<const UnitKey> units) {
  evict(units);
  release_unused_blocks();
}

void ClusterCache::evict(std::span<const UnitKey> units) {
  const ClusterMembers& members = layer_.index.clusters.members();
  for (const UnitKey unit : units) slots_.remove(unit, members.of(unit));
  work_.counters.cache.evicted += units.size();
}

bool ClusterCache::place(const policies::WantedUnit& admitted) {
  const auto place_rows = [&] {
    return slots_.place(admitted.unit, scratch_.rows,
                        [&] { return memory_.pools.cached_row_blocks->take(); });
  };
  list_rows_of(admitted.unit);
  if (place_rows()) return true;
  if (!displace_for(admitted)) return false;
  evict(scratch_.evicted);
  const Status placed = place_rows();
  TERRACE_ASSERT(placed.has_value());  // slots enough are free, and their blocks are there
  return true;
}

void ClusterCache::list_rows_of(UnitKey unit) {
  const std::uint32_t* const ids = layer_.token().selection.on_host().ids;
  std::vector<UnitRow>& rows = scratch_.rows;
  rows.clear();
  scratch_.selection.rows().for_each_place(unit, [&](std::uint32_t place) {
    rows.push_back({.position = ids[place], .staged = place + 1});
  });
  const std::span<const std::uint32_t> members = layer_.index.clusters.members().of(unit);
  const std::size_t staged = rows.size();
  if (staged == members.size()) return;
  // The other rows are on the host.
  std::ranges::sort(rows, {}, &UnitRow::position);
  std::size_t next = 0;
  for (const std::uint32_t member : members) {
    if (next < staged && rows[next].position == member) {
      ++next;
    } else {
      rows.push_back({.position = member});
    }
  }
}

Result<HostRows> ClusterCache::rows_to_send() {
  std::vector<std::uint32_t>& blocks = scratch_.blocks;
  blocks.clear();
  for (const CachedRowChange& change : slots_.changes()) {
    const bool from_host = change.number > 0 && change.staged == 0;
    if (from_host && layer_.rows.has_mover()) {
      blocks.push_back(change.position / static_cast<std::uint32_t>(plan_.block_tokens()));
    }
  }
  return layer_.host_rows(blocks);
}

Result<Ticket> ClusterCache::flush(Queue& queue) {
  // Changes that the last flush sent may still be read.
  TERRACE_TRY(work_.await(WaitReason::refill, layer_.tickets().refilled));
  TERRACE_ASSIGN(sent_rows_, rows_to_send());
  const Result<Ticket> flushed =
      slots_.flush(work_.backend, queue, sent_rows_.table(), staging_.data());
  if (flushed || flushed.error().code != Errc::out_of_memory) return flushed;
  TERRACE_TRY(
      work_.await(WaitReason::compute, layer_.tickets().attended));  // it may read the slots
  give_up_slots();
  return Ticket{};
}

Status ClusterCache::send_changes() {
  // Without rows to fetch there is nothing to hide: the layer's next step makes the changes itself,
  // which takes less than to wake another queue.
  if (!slots_.needs_link()) return {};
  Queue& refill = work_.lanes.refill();
  TERRACE_TRY(refill.wait_for(layer_.tickets().attended));  // it may still read the slots
  TERRACE_ASSIGN(layer_.tickets().refilled, flush(refill));
  return {};
}

Status ClusterCache::await_changes() {
  // Flush pending changes first: new changes may name the same rows again.
  if (slots_.changed()) {
    TERRACE_ASSIGN(layer_.tickets().refilled, flush(work_.lanes.refill()));
  }
  return work_.await(WaitReason::refill, layer_.tickets().refilled);
}

bool ClusterCache::drop_clusters() {
  if (resident_ == nullptr) return false;
  const bool any = resident_->resident_units() > 0;
  resident_->drop_from(0);
  slots_.clear();
  return any;
}

void ClusterCache::drop_some(double share, Rng& rng) {
  const ClusterMembers& members = layer_.index.clusters.members();
  for (UnitKey unit = 0; unit < members.units(); ++unit) {
    if (!slots_.holds(unit) || rng.uniform() >= share) continue;
    resident_->drop(unit);
    slots_.remove(unit, members.of(unit));
  }
}

bool ClusterCache::release_unused_blocks() {
  const std::vector<std::byte*> unused = slots_.take_unused_blocks();
  for (std::byte* const block : unused) memory_.pools.cached_row_blocks->give(block);
  return !unused.empty();
}

void ClusterCache::give_up_slots() {
  if (drop_clusters()) work_.journal.note_loss();
  release_unused_blocks();
  slots_.reset();
}

bool ClusterCache::spill() {
  if (!layer_.at_rest()) return false;
  if (drop_clusters()) work_.journal.note_loss();
  if (release_unused_blocks()) return true;
  // The tables last: without them the layer has no cache until there is room for them again.
  const bool freed = slots_.has_tables();
  slots_.reset();
  return freed;
}

void ClusterCache::give_up_device_memory() {
  drop_clusters();
  release_unused_blocks();
  slots_.reset();
  staging_.reset();
}

}  // namespace terrace
