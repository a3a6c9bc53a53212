#include "cache/itemwise_lru.hpp"

#include <algorithm>

namespace terrace::bench {

bool ItemwiseLru::touch(UnitKey unit, std::size_t slots) {
  if (const auto found = places_.find(unit); found != places_.end()) {
    uses_.splice(uses_.end(), uses_, found->second);
    return true;
  }
  if (slots > slots_) return false;
  for (; used_ + slots > slots_; uses_.pop_front()) {
    used_ -= uses_.front().slots;
    places_.erase(uses_.front().unit);
  }
  used_ += slots;
  places_[unit] = uses_.insert(uses_.end(), {unit, slots});
  return false;
}

void ItemwiseReplay::apply(const tuning::TraceRecord& record, const tuning::LayerTraffic& traffic) {
  if (record.kind != tuning::TraceRecord::Kind::selection) return;
  const auto [found, opened] =
      layers_.try_emplace({record.sequence, record.layer}, Layer{.cache = ItemwiseLru(slots_)});
  Layer& layer = found->second;
  if (head_.unit != tuning::TraceUnit::cluster && head_.placement == Placement::offload) {
    for (std::size_t block = std::max(layer.passed, traffic.middle_begin);
         block < traffic.window_begin; ++block) {
      const auto unit = static_cast<UnitKey>(block);
      if (!layer.cache.holds(unit)) layer.cache.touch(unit, 1);
    }
    layer.passed = traffic.window_begin;
  }
  for (const offload::WantedUnit& unit : traffic.wanted) {
    const bool hit = layer.cache.touch(unit.unit, unit.slots);
    (hit ? counters_.rows_hit : counters_.rows_missed) += unit.rows_wanted;
    ++(hit ? counters_.units_hit : counters_.units_missed);
    if (!hit && layer.cache.holds(unit.unit)) counters_.refill_rows += unit.refill_rows;
  }
}

}  // namespace terrace::bench
