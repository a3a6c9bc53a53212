// What the resident cache does with a step: counting what was wanted, refilling what is admitted,
// and taking over blocks that leave the window. The cache decides; here its decisions are carried
// out.
#include <algorithm>
#include <utility>

#include "../sequence_state.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/runtime/selection_observer.hpp"

namespace terrace {
namespace {

std::uint64_t refused_units(const offload::ResidentCache& cache) {
  return cache.counters().refused_units + cache.counters().no_room_units;
}

/// A list of a selection, and the place of its first row among all lists'.
struct RowList {
  std::span<const std::uint32_t> positions;
  std::size_t first = 0;
};

/// Notes the rows of a list that lie in `cacheable`; returns how many do not. Rows that were in a
/// list before are neither.
template <typename IsNew, typename UnitOf>
std::size_t note_rows(const RowList& list, TokenRange cacheable, WantedRows& wanted, IsNew is_new,
                      UnitOf unit_of) {
  std::size_t others = 0;
  for (std::size_t i = 0; i < list.positions.size(); ++i) {
    const std::uint32_t position = list.positions[i];
    if (!is_new(position)) continue;
    if (cacheable.contains(position)) {
      wanted.add(unit_of(position), static_cast<std::uint32_t>(list.first + i));
    } else {
      ++others;
    }
  }
  return others;
}

}  // namespace

Status SequenceState::reserve_cache(std::size_t length) {
  const CacheOptions& options = runtime_.options.cache;
  // An empty sequence has no budget yet that said how much.
  if (options.none() || !selects() || !budget_resolved_) return {};
  if (cache_sharers_ == 0) {
    runtime_.enter_cache();
    if (const Status fitted = fit_cache(); !fitted) {
      runtime_.leave_cache();
      return fitted;
    }
  }
  for (LayerState& layer : layers_) {
    if (layer.cache == nullptr) {
      TERRACE_ASSIGN(auto cache, make_resident_cache(options, cache_tokens_ / slot_tokens(),
                                                     cache_units(layer)));
      layer.cache = std::make_unique<offload::ResidentCache>(std::move(cache));
    }
    layer.cache->reserve_keys(cache_units(layer));
    if (caches_clusters()) TERRACE_TRY(reserve_slots(layer, length));
  }
  return {};
}

Status SequenceState::fit_cache() {
  const std::size_t sharers = runtime_.cache_sharers();
  if (runtime_.options.cache.none() || !selects() || sharers == cache_sharers_) return {};
  const std::size_t slots = cache_slots(
      runtime_.options.cache,
      {.slot_tokens = slot_tokens(), .selected_tokens = split_.selected, .sharers = sharers});
  for (LayerState& layer : layers_) TERRACE_TRY(await_slots(layer));
  cache_sharers_ = sharers;
  cache_tokens_ = slots * slot_tokens();
  for (LayerState& layer : layers_) {
    if (layer.cache == nullptr) continue;
    evicted_.clear();
    layer.cache->resize(slots, evicted_);
    if (caches_clusters()) {
      let_go_of(layer, evicted_);
      release_unused_blocks(layer);
    } else {
      release_evicted(layer, evicted_);
    }
  }
  if (runtime_.options.observer != nullptr) runtime_.options.observer->on_share(id_, sharers);
  return {};
}

void SequenceState::leave_cache() {
  if (std::exchange(cache_sharers_, 0) != 0) runtime_.leave_cache();
}

std::size_t SequenceState::cache_units(const LayerState& layer) const noexcept {
  if (caches_clusters()) return cluster_units(layer);
  return std::max<std::size_t>(1, layer.places.size());
}

std::size_t SequenceState::slot_tokens() const noexcept {
  return cache_slot_tokens(runtime_.options.cache.granularity, runtime_.shape(), block_tokens());
}

void SequenceState::place_cache_seeds() {
  if (layers_.front().cache == nullptr || keeps_everything() || caches_clusters()) return;
  if (runtime_.options.placement == Placement::resident_first) return;
  const TokenRange window = window_at(prefill_end_);
  // Blocks that hold tokens of an earlier prompt are on the host only.
  const std::size_t begin = divide_up(length_, block_tokens());
  const std::size_t end = std::max(begin, window.begin / block_tokens());
  const std::size_t slots = std::min(cache_tokens_ / block_tokens(), end - begin);
  // Nearest to the window first: those the next queries are likeliest to want. Where memory runs
  // out no layer has more than another.
  for (std::size_t block = end; block-- > end - slots;) {
    for (LayerState& layer : layers_) place_cache_seed(layer, block);
  }
}

void SequenceState::place_cache_seed(LayerState& layer, std::size_t block) {
  if (layer.places[block] != BlockPlace::absent) return;
  const Result<std::byte*> slot = runtime_.take_spare_block();
  if (!slot) return report_loss();
  layer.device_blocks.set(block, *slot);
  layer.places[block] = BlockPlace::resident;
}

bool SequenceState::adopt_block(LayerState& layer, std::size_t block) {
  if (layer.cache == nullptr || caches_clusters()) return false;
  evicted_.clear();
  const bool adopted = layer.cache->adopt(static_cast<UnitKey>(block), 1, evicted_);
  if (adopted) {
    layer.places[block] = BlockPlace::cached;
    ++counters_.cache.adopted;
  }
  release_evicted(layer, evicted_);
  return adopted;
}

void SequenceState::release_evicted(LayerState& layer, std::span<const UnitKey> blocks) {
  for (const UnitKey block : blocks) {
    ++counters_.cache.evicted;
    const auto arrival = std::ranges::find(layer.arriving, block, &ArrivingBlock::block);
    if (arrival != layer.arriving.end()) {
      // Its slot is being written on the refill queue; later refills come behind that.
      layer.spare_slots.push_back(arrival->slot);
      layer.arriving.erase(arrival);
      continue;
    }
    runtime_.give_block(layer.device_blocks[block]);
    layer.device_blocks.set(block, nullptr);
    layer.places[block] = BlockPlace::absent;
  }
}

TokenRange SequenceState::cacheable_positions(const LayerState& layer) const noexcept {
  const auto resident = [](BlockPlace place) { return place == BlockPlace::resident; };
  const auto head = std::ranges::find_if_not(layer.places, resident);
  const auto tail = std::find_if_not(layer.places.rbegin(), layer.places.rend(), resident).base();
  const auto position = [&](auto block) {
    return static_cast<std::size_t>(block - layer.places.begin()) * block_tokens();
  };
  return {position(head), std::max(position(head), position(tail))};
}

void SequenceState::count_wanted(const LayerState& layer) {
  const SelectionBuffers buffers = selection_buffers(layer.selection_host);
  wanted_rows_.begin(cache_units(layer), lists() * list_rows());
  if (group() > 1) start_noting_rows(layer);
  const TokenRange cacheable = cacheable_positions(layer);
  for (std::size_t list = 0; list < lists(); ++list) {
    counters_.attended += buffers.counts[list];
    if (runtime_.policy->traits().gives_pseudo_entries) {
      counters_.pseudo_entries += buffers.pseudo_counts[list];
    }
    counters_.cache.rows_resident += count_list(layer, list, cacheable);
  }
  counters_.bytes.demand += *buffers.missed_count * runtime_.shape().row_bytes();
  counters_.cache.rows_missed += *buffers.missed_count;
}

std::size_t SequenceState::count_list(const LayerState& layer, std::size_t list,
                                      TokenRange cacheable) {
  const SelectionBuffers buffers = selection_buffers(layer.selection_host);
  const std::size_t first = list * list_rows();
  const RowList rows{.positions = {buffers.ids + first, buffers.counts[list]}, .first = first};
  const std::size_t head = list / group();
  const auto count = [&](auto unit_of) {
    if (group() == 1) {
      return note_rows(rows, cacheable, wanted_rows_, [](std::uint32_t) { return true; }, unit_of);
    }
    // Another query head of the KV head may want the row too.
    std::uint64_t* const seen = rows_seen_.data() + head * layer.places.size() * block_tokens();
    const auto is_new = [&](std::uint32_t position) {
      return std::exchange(seen[position], row_epoch_) != row_epoch_;
    };
    return note_rows(rows, cacheable, wanted_rows_, is_new, unit_of);
  };
  if (!caches_clusters()) {
    return count([tokens = static_cast<std::uint32_t>(block_tokens())](std::uint32_t position) {
      return UnitKey{position / tokens};
    });
  }
  return count([units = layer.members.units_of(head).data(),
                begin = layer.members.first_position()](std::uint32_t position) {
    return units[position - begin];
  });
}

void SequenceState::start_noting_rows(const LayerState& layer) {
  const std::size_t rows = runtime_.shape().kv_heads * layer.places.size() * block_tokens();
  if (rows_seen_.size() < rows) rows_seen_.assign(rows, 0);
  ++row_epoch_;
}

Status SequenceState::upkeep_cache(std::size_t layer_number) {
  LayerState& layer = layers_[layer_number];
  counters_.lists += lists();
  counters_.attended += lists() * (layer.sinks.size() + layer.window.size());
  if (!layer.selected) return {};
  const TimePoint begin = runtime_.backend->clock().now();
  if (caches_clusters()) read_members(layer);
  count_wanted(layer);
  wanted_.clear();
  caches_clusters() ? want_clusters(layer) : want_blocks(layer);
  Status refilled;
  if (layer.cache != nullptr) refilled = update_cache(layer);
  // Without a cache only what was selected is counted.
  if (layer.cache != nullptr) count_upkeep(begin);
  // What was decided is counted, also where the copying fails.
  if (runtime_.options.observer != nullptr) report_selection(layer_number);
  layer.clusters_renamed = false;
  return refilled;
}

void SequenceState::want_blocks(const LayerState& layer) {
  const auto refill_rows = static_cast<std::uint32_t>(block_tokens() * runtime_.shape().kv_heads);
  for (const UnitKey block : wanted_rows_.units()) {
    const std::uint32_t rows = count_unit(block, /*hit=*/layer.places[block] == BlockPlace::cached);
    wanted_.push_back({.unit = block, .rows_wanted = rows, .refill_rows = refill_rows});
  }
}

std::uint32_t SequenceState::count_unit(UnitKey unit, bool hit) {
  const std::uint32_t rows = wanted_rows_.count(unit);
  if (hit) counters_.cache.rows_hit += rows;
  ++(hit ? counters_.cache.blocks_hit : counters_.cache.blocks_missed);
  return rows;
}

Status SequenceState::update_cache(LayerState& layer) {
  const std::uint64_t refused_before = refused_units(*layer.cache);
  layer.cache->plan_step(wanted_, plan_);
  counters_.cache.refused += refused_units(*layer.cache) - refused_before;
  if (!caches_clusters()) return update_blocks(layer);
  update_clusters(layer);
  return {};
}

void SequenceState::reuse_slots(LayerState& layer, std::span<const UnitKey> evicted) {
  for (const UnitKey block : evicted) {
    layer.spare_slots.push_back(layer.device_blocks[block]);
    layer.device_blocks.set(block, nullptr);
    layer.places[block] = BlockPlace::absent;
    ++counters_.cache.evicted;
  }
}

std::byte* SequenceState::slot_for(LayerState& layer, const offload::WantedUnit& admitted) {
  if (layer.spare_slots.empty()) {
    if (const auto spare = runtime_.take_spare_block()) return *spare;
    if (!displace_for(layer, admitted)) return nullptr;
    reuse_slots(layer, evicted_);
  }
  std::byte* const slot = layer.spare_slots.back();
  layer.spare_slots.pop_back();
  return slot;
}

bool SequenceState::displace_for(LayerState& layer, const offload::WantedUnit& admitted) {
  report_loss();
  evicted_.clear();
  return layer.cache->displace_for(admitted, evicted_);
}

Status SequenceState::update_blocks(LayerState& layer) {
  reuse_slots(layer, plan_.evicted);
  extents_.clear();
  for (const std::uint32_t admitted : plan_.admitted) {
    const UnitKey block = wanted_[admitted].unit;
    std::byte* const slot = slot_for(layer, wanted_[admitted]);
    if (slot == nullptr) {
      ++counters_.cache.refused;
      continue;
    }
    layer.arriving.push_back({block, slot});
    extents_.push_back({slot, layer.host_blocks[block], runtime_.block_bytes()});
    ++counters_.cache.admitted;
  }
  if (extents_.empty()) return {};
  counters_.bytes.refill += extents_.size() * runtime_.block_bytes();
  // An evicted block's slot may still be read by this step's attention.
  TERRACE_TRY(refill_queue_->wait_for(layer.attended));
  TERRACE_ASSIGN(layer.refilled, refill_queue_->copy(Phase::refill, extents_));
  return {};
}

void SequenceState::sort_positions(const LayerState& layer) {
  const SelectionBuffers buffers = selection_buffers(layer.selection_host);
  const std::size_t heads = runtime_.shape().kv_heads;
  positions_.clear();
  head_counts_.assign(heads, 0);
  for (std::size_t head = 0; head < heads; ++head) {
    const auto begin = static_cast<std::ptrdiff_t>(positions_.size());
    for (std::size_t list = head * group(); list < (head + 1) * group(); ++list) {
      const std::uint32_t* const ids = buffers.ids + list * list_rows();
      positions_.insert(positions_.end(), ids, ids + buffers.counts[list]);
    }
    std::sort(positions_.begin() + begin, positions_.end());
    positions_.erase(std::unique(positions_.begin() + begin, positions_.end()), positions_.end());
    head_counts_[head] = static_cast<std::uint32_t>(positions_.end() - positions_.begin() - begin);
  }
}

void SequenceState::report_selection(std::size_t layer_number) {
  LayerState& layer = layers_[layer_number];
  sort_positions(layer);
  count_clusters(layer);
  const TokenRange cacheable = cacheable_positions(layer);
  runtime_.options.observer->on_selection({.sequence = id_,
                                           .layer = static_cast<LayerId>(layer_number),
                                           .position = length_,
                                           .sinks = layer.sinks,
                                           .window = layer.window,
                                           .resident_head = cacheable.begin / block_tokens(),
                                           .resident_tail = cacheable.end / block_tokens(),
                                           .positions = positions_,
                                           .head_counts = head_counts_,
                                           .clusters = wanted_clusters_,
                                           .clusters_renamed = layer.clusters_renamed});
}

void SequenceState::report_load(std::span<const LoadingBlock> loaded) const {
  if (runtime_.options.observer == nullptr) return;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto blocks =
        static_cast<std::size_t>(std::ranges::count(loaded, &layers_[i], &LoadingBlock::layer));
    runtime_.options.observer->on_load({.sequence = id_,
                                        .layer = static_cast<LayerId>(i),
                                        .position = length_,
                                        .window_begin = window_of(i, length_).begin,
                                        .loaded_bytes = blocks * runtime_.block_bytes()});
  }
}

void SequenceState::report_loss() const {
  if (runtime_.options.observer != nullptr) runtime_.options.observer->on_loss(id_);
}

void SequenceState::report_step_end() {
  if (runtime_.options.observer == nullptr) return;
  const KvShape& shape = runtime_.shape();
  runtime_.options.observer->on_step_end(
      {.sequence = id_,
       .offload_bytes = keeps_everything() ? 0 : shape.layers * shape.token_bytes(),
       .index_bytes =
           counters_.bytes.index - std::exchange(reported_index_bytes_, counters_.bytes.index),
       .ids_bytes = std::exchange(ids_bytes_, 0U)});
}

}  // namespace terrace
