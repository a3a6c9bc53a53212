#include "block_cache.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "terrace/core/assert.hpp"

namespace terrace {

std::size_t BlockCache::unit_count() const noexcept {
  return std::max<std::size_t>(1, layer_.rows.blocks());
}

RowUnits BlockCache::row_units() {
  return {.count = unit_count(), .block_tokens = plan_.block_tokens()};
}

Status BlockCache::publish(Queue& compute) {
  if (arriving_.empty()) return {};
  TERRACE_TRY(compute.wait_for(layer_.tickets().refilled));
  for (const Arrival& arrival : arriving_) {
    // Otherwise the block's old slot would leak.
    TERRACE_ASSERT(layer_.rows.absent(arrival.block));
    layer_.rows.put(arrival.block, arrival.slot, BlockPlace::cached);
  }
  arriving_.clear();
  return {};
}

bool BlockCache::adopt_block(std::size_t block) {
  if (resident_ == nullptr) return false;
  scratch_.evicted.clear();
  const bool adopted = resident_->adopt(static_cast<UnitKey>(block), 1, scratch_.evicted);
  if (adopted) {
    layer_.rows.keep_as(block, BlockPlace::cached);
    ++work_.counters.cache.adopted;
  }
  release_evicted(scratch_.evicted);
  return adopted;
}

void BlockCache::forget_block(std::size_t block) { resident_->drop(static_cast<UnitKey>(block)); }

void BlockCache::drop_unsettled() {
  for (const Arrival& arrival : arriving_) {
    forget_block(arrival.block);
    memory_.pools.blocks->give(arrival.slot);
  }
  arriving_.clear();
}

void BlockCache::drop_some(double share, Rng& rng) {
  for (std::size_t block = 0; block < layer_.rows.blocks(); ++block) {
    const bool cached = layer_.rows.place(block) == BlockPlace::cached;
    if (cached && rng.uniform() < share) layer_.drop_block(block);
  }
}

void BlockCache::want_units() {
  const auto refill_rows =
      static_cast<std::uint32_t>(plan_.block_tokens() * plan_.shape().kv_heads);
  for (const UnitKey block : scratch_.selection.rows().units()) {
    const bool hit = layer_.rows.place(block) == BlockPlace::cached;
    const std::uint32_t rows = count_unit(block, hit);
    scratch_.wanted.push_back({.unit = block, .rows_wanted = rows, .refill_rows = refill_rows});
  }
}

Status BlockCache::carry_out() {
  reuse_slots(scratch_.plan.evicted);
  std::vector<CopyExtent>& extents = scratch_.extents;
  extents.clear();
  CacheCounters& counters = work_.counters.cache;
  std::vector<std::uint32_t>& blocks = scratch_.blocks;
  blocks.clear();
  for (const std::uint32_t admitted : scratch_.plan.admitted) {
    blocks.push_back(static_cast<std::uint32_t>(scratch_.wanted[admitted].unit));
  }
  const Result<HostRows> rows = layer_.host_rows(blocks);
  for (const std::uint32_t admitted : scratch_.plan.admitted) {
    const UnitKey block = scratch_.wanted[admitted].unit;
    if (!rows) {
      forget_block(block);
      ++counters.refused;
      continue;
    }
    std::byte* const slot = slot_for(scratch_.wanted[admitted]);
    if (slot == nullptr) {
      ++counters.refused;
      continue;
    }
    arriving_.push_back({block, slot});
    extents.push_back({slot, rows->page(block), plan_.block_bytes()});
    ++counters.admitted;
  }
  if (extents.empty()) return {};
  work_.counters.bytes.refill += extents.size() * plan_.block_bytes();
  // An evicted block's slot may still be read by this step's attention.
  Queue& refill = work_.lanes.refill();
  TERRACE_TRY(refill.wait_for(layer_.tickets().attended));
  TERRACE_ASSIGN(layer_.tickets().refilled, refill.copy(Phase::refill, extents));
  return {};
}

void BlockCache::release_evicted(std::span<const UnitKey> blocks) {
  for (const UnitKey block : blocks) {
    ++work_.counters.cache.evicted;
    const auto arrival = std::ranges::find(arriving_, block, &Arrival::block);
    if (arrival == arriving_.end()) {
      layer_.rows.release(block);
      continue;
    }
    // Its slot is being written on the refill queue; later refills come after that write.
    layer_.rows.spare_slots.push_back(arrival->slot);
    arriving_.erase(arrival);
  }
}

void BlockCache::reuse_slots(std::span<const UnitKey> evicted) {
  for (const UnitKey block : evicted) {
    layer_.rows.spare_slots.push_back(layer_.rows.take_out(block));
    ++work_.counters.cache.evicted;
  }
}

std::byte* BlockCache::slot_for(const policies::WantedUnit& admitted) {
  std::vector<std::byte*>& spare_slots = layer_.rows.spare_slots;
  if (spare_slots.empty()) {
    if (const auto spare = memory_.pools.blocks->take()) return *spare;
    if (!displace_for(admitted)) return nullptr;
    reuse_slots(scratch_.evicted);
  }
  std::byte* const slot = spare_slots.back();
  spare_slots.pop_back();
  return slot;
}

}  // namespace terrace
