#include "unit_cache.hpp"

#include "layer/layer.hpp"

namespace terrace {
namespace {

std::uint64_t refused_units(const policies::ResidentCache& cache) {
  return cache.counters().refused_units + cache.counters().no_room_units;
}

}  // namespace

Status UnitCache::reserve(std::size_t slots, std::size_t length) {
  if (resident_ == nullptr) {
    TERRACE_ASSIGN(auto cache, make_resident_cache(plan_.options.cache, slots, unit_count()));
    resident_ = std::make_unique<policies::ResidentCache>(std::move(cache));
  }
  resident_->reserve_keys(unit_count());
  return reserve_memory(length);
}

void UnitCache::resize(std::size_t slots) {
  if (resident_ == nullptr) return;
  scratch_.evicted.clear();
  resident_->resize(slots, scratch_.evicted);
  release_evicted(scratch_.evicted);
}

void UnitCache::count_token() {
  scratch_.selection.count(layer_, row_units(), work_.counters);
  scratch_.wanted.clear();
  want_units();
}

Status UnitCache::take_step() {
  const TimePoint begin = work_.clock().now();
  count_token();
  if (resident_ == nullptr) return {};
  const std::uint64_t refused_before = refused_units(*resident_);
  resident_->plan_step(scratch_.wanted, scratch_.plan);
  work_.counters.cache.refused += refused_units(*resident_) - refused_before;
  const Status done = carry_out();
  work_.count_upkeep(begin);
  return done;
}

std::uint32_t UnitCache::count_unit(UnitKey unit, bool hit) {
  CacheCounters& counters = work_.counters.cache;
  const std::uint32_t rows = scratch_.selection.rows().count(unit);
  if (hit) counters.rows_hit += rows;
  ++(hit ? counters.blocks_hit : counters.blocks_missed);
  return rows;
}

bool UnitCache::displace_for(const policies::WantedUnit& admitted) {
  work_.journal.note_loss();
  scratch_.evicted.clear();
  return resident_->displace_for(admitted, scratch_.evicted);
}

}  // namespace terrace
