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

void ItemwiseLru::drop_from(UnitKey first) {
  for (auto entry = uses_.begin(); entry != uses_.end();) {
    const auto next = std::next(entry);
    if (entry->unit >= first) {
      used_ -= entry->slots;
      places_.erase(entry->unit);
      uses_.erase(entry);
    }
    entry = next;
  }
}

void ItemwiseReplay::load(Layer& layer, const tuning::LayerTraffic& traffic) const {
  layer.cache.drop_from(keeps_clusters() ? 0 : static_cast<UnitKey>(traffic.window_begin));
  layer.passed = traffic.window_begin;
}

void ItemwiseReplay::adopt_passed(Layer& layer, const tuning::LayerTraffic& traffic) const {
  if (keeps_clusters() || head_.placement != Placement::offload) return;
  for (std::size_t block = std::max(layer.passed, traffic.middle_begin);
       block < traffic.window_begin; ++block) {
    const auto unit = static_cast<UnitKey>(block);
    if (!layer.cache.holds(unit)) layer.cache.touch(unit, 1);
  }
  layer.passed = std::max(layer.passed, traffic.window_begin);
}

void ItemwiseReplay::apply(const tuning::TraceRecord& record, const tuning::LayerTraffic& traffic) {
  using Kind = tuning::TraceRecord::Kind;
  if (record.kind == Kind::pause || record.kind == Kind::close) {
    return tuning::erase_sequence(layers_, record.sequence);
  }
  if (record.kind != Kind::selection && record.kind != Kind::load) return;
  const auto [found, opened] =
      layers_.try_emplace({record.sequence, record.layer}, Layer{.cache = ItemwiseLru(slots_)});
  Layer& layer = found->second;
  if (record.kind == Kind::load) return load(layer, traffic);
  if (traffic.renamed) layer.cache.drop_from(0);
  adopt_passed(layer, traffic);
  bool reached = true;
  for (const policies::WantedUnit& unit : traffic.wanted) {
    const bool hit = layer.cache.touch(unit.unit, unit.slots) && reached;
    reached = hit || !head_.prefixes;
    (hit ? counters_.rows_hit : counters_.rows_missed) += unit.rows_wanted;
    ++(hit ? counters_.units_hit : counters_.units_missed);
    if (!hit && layer.cache.holds(unit.unit)) counters_.refill_rows += unit.refill_rows;
  }
}

}  // namespace terrace::bench
