#include "terrace/offload/resident_cache.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "terrace/core/assert.hpp"

namespace terrace::offload {

Result<ResidentCache> ResidentCache::create(std::size_t capacity_slots, std::size_t key_count,
                                            std::unique_ptr<ReplacementPolicy> replacement,
                                            std::unique_ptr<AdmissionPolicy> admission) {
  if (key_count == 0 || key_count > std::numeric_limits<UnitKey>::max()) {
    return fail(Errc::invalid_argument, "a resident cache cannot have {} unit keys", key_count);
  }
  if (replacement == nullptr) {
    return fail(Errc::invalid_argument, "a resident cache needs a replacement policy");
  }
  return ResidentCache(capacity_slots, key_count, std::move(replacement), std::move(admission));
}

ResidentCache::ResidentCache(std::size_t capacity_slots, std::size_t key_count,
                             std::unique_ptr<ReplacementPolicy> replacement,
                             std::unique_ptr<AdmissionPolicy> admission)
    : capacity_(capacity_slots),
      replacement_(std::move(replacement)),
      admission_(std::move(admission)),
      units_(key_count) {}

void ResidentCache::plan_step(std::span<const WantedUnit> wanted, CachePlan& plan) {
  ++step_;
  wanted_slots_ = 0;
  plan.hit.assign(wanted.size(), 0);
  plan.evicted.clear();
  plan.admitted.clear();
  if (admission_) {
    for (const WantedUnit& each : wanted) admission_->want(each.unit, each.rows_wanted);
  }
  test_and_touch(wanted, plan);
  rank_misses(wanted, plan);
  admit(wanted, plan);
  if (admission_) admission_->end_step();
}

void ResidentCache::test_and_touch(std::span<const WantedUnit> wanted, CachePlan& plan) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const WantedUnit& each = wanted[i];
    Unit& unit = units_[each.unit];
    TERRACE_DEBUG_ASSERT(unit.wanted_step != step_);
    unit.wanted_step = step_;
    if (unit.slots == 0) {
      ++counters_.missed_units;
      counters_.missed_rows += each.rows_wanted;
      continue;
    }
    plan.hit[i] = 1;
    wanted_slots_ += unit.slots;
    ++counters_.hit_units;
    counters_.hit_rows += each.rows_wanted;
    replacement_->touch(each.unit);
  }
}

void ResidentCache::rank_misses(std::span<const WantedUnit> wanted, const CachePlan& plan) {
  candidates_.clear();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (plan.hit[i] != 0) continue;
    const double worth =
        admission_ ? admission_->worth(wanted[i].unit) : std::numeric_limits<double>::infinity();
    if (worth < static_cast<double>(wanted[i].refill_rows)) {
      ++counters_.refused_units;
      continue;
    }
    candidates_.push_back({.worth = worth, .index = static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
    return a.worth != b.worth ? a.worth > b.worth : a.index < b.index;
  });
}

void ResidentCache::admit(std::span<const WantedUnit> wanted, CachePlan& plan) {
  for (const Candidate& candidate : candidates_) {
    const WantedUnit& each = wanted[candidate.index];
    if (!make_room(each.slots, plan.evicted)) {
      ++counters_.no_room_units;
      continue;  // a smaller unit may still fit
    }
    units_[each.unit].slots = each.slots;
    used_ += each.slots;
    wanted_slots_ += each.slots;
    replacement_->track(each.unit, each.slots);
    plan.admitted.push_back(candidate.index);
    ++counters_.admitted_units;
    counters_.refill_rows += each.refill_rows;
  }
}

bool ResidentCache::make_room(std::size_t slots, std::vector<UnitKey>& evicted) {
  // Asked before anything is evicted, so that nothing goes in vain.
  if (wanted_slots_ + slots > capacity_) return false;
  while (used_ + slots > capacity_) {
    const auto victim =
        replacement_->evict([this](UnitKey unit) { return units_[unit].wanted_step != step_; });
    if (!victim) return false;
    clear_slots(*victim);
    evicted.push_back(*victim);
    ++counters_.evicted_units;
  }
  return true;
}

void ResidentCache::clear_slots(UnitKey unit) noexcept {
  TERRACE_ASSERT(units_[unit].slots != 0);
  used_ -= units_[unit].slots;
  units_[unit].slots = 0;
}

void ResidentCache::forget(UnitKey unit) {
  drop(unit);
  units_[unit].wanted_step = 0;
  if (admission_) admission_->forget(unit);
}

void ResidentCache::drop(UnitKey unit) {
  if (!resident(unit)) return;
  replacement_->forget(unit);
  clear_slots(unit);
}

void ResidentCache::resize(std::size_t capacity_slots, std::vector<UnitKey>& evicted) {
  capacity_ = capacity_slots;
  while (used_ > capacity_) {
    const auto victim = replacement_->evict([](UnitKey) { return true; });
    TERRACE_ASSERT(victim.has_value());
    clear_slots(*victim);
    evicted.push_back(*victim);
    ++counters_.evicted_units;
  }
}

}  // namespace terrace::offload
