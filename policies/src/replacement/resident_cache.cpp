#include "terrace/policies/resident_cache.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "terrace/core/assert.hpp"

namespace terrace::policies {

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
      admission_(std::move(admission)) {
  reserve_keys(key_count);
}

void ResidentCache::reserve_keys(std::size_t key_count) {
  if (key_count <= units_.size()) return;
  units_.resize(key_count);
  replacement_->resize({.keys = key_count, .slots = capacity_});
  if (admission_) admission_->resize(key_count);
}

void ResidentCache::plan_step(std::span<const WantedUnit> wanted, CachePlan& plan) {
  ++step_;
  wanted_slots_ = 0;
  ask_anew();
  plan.hit.assign(wanted.size(), 0);
  plan.evicted.clear();
  // Reserves for all units that a search may take out, so that new keys cause no new allocation.
  plan.evicted.reserve(std::bit_ceil(std::min(capacity_, units_.size())));
  plan.admitted.clear();
  test_and_touch(wanted, plan);
  rank_misses(wanted, plan);
  admit(wanted, plan);
  expire(plan.evicted);
  if (admission_) {
    admission_->end_step();
    ask_anew();  // worths have changed
  }
}

void ResidentCache::ask_anew() noexcept {
  useless_spare_.fill(-std::numeric_limits<double>::infinity());
}

void ResidentCache::test_and_touch(std::span<const WantedUnit> wanted, CachePlan& plan) {
  hits_.clear();
  misses_.clear();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const WantedUnit& each = wanted[i];
    Unit& unit = units_[each.unit];
    TERRACE_DEBUG_ASSERT(unit.wanted_step != step_);
    unit.wanted_step = step_;
    const bool hit = unit.slots != 0;
    if (admission_) admission_->want(each.unit, each.rows_wanted, hit);
    if (!hit) {
      misses_.push_back(each.unit);
      counters_.missed_rows += each.rows_wanted;
      continue;
    }
    plan.hit[i] = 1;
    wanted_slots_ += unit.slots;
    counters_.hit_rows += each.rows_wanted;
    hits_.push_back(each.unit);
  }
  counters_.hit_units += hits_.size();
  counters_.missed_units += misses_.size();
  replacement_->touch(hits_);
  replacement_->miss(misses_);
}

double ResidentCache::worth(UnitKey unit) const {
  return admission_ ? admission_->worth(unit) : std::numeric_limits<double>::infinity();
}

void ResidentCache::rank_misses(std::span<const WantedUnit> wanted, const CachePlan& plan) {
  candidates_.clear();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (plan.hit[i] != 0) continue;
    const double expected = worth(wanted[i].unit);
    if (expected < static_cast<double>(wanted[i].refill_rows)) {
      ++counters_.refused_units;
      continue;
    }
    candidates_.push_back({.worth = expected,
                           .place = replacement_->place_in_line(wanted[i].unit),
                           .index = static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
    if (a.worth != b.worth) return a.worth > b.worth;
    return a.place != b.place ? a.place < b.place : a.index < b.index;
  });
}

void ResidentCache::admit(std::span<const WantedUnit> wanted, CachePlan& plan) {
  for (const Candidate& candidate : candidates_) {
    const WantedUnit& each = wanted[candidate.index];
    if (!admit_one(each, candidate.worth, plan.evicted)) continue;  // a smaller one may still fit
    plan.admitted.push_back(candidate.index);
    ++counters_.admitted_units;
    counters_.refill_rows += each.refill_rows;
  }
}

bool ResidentCache::admit_one(const WantedUnit& wanted, double worth_of_it,
                              std::vector<UnitKey>& evicted) {
  // This is checked before anything is evicted, so that no unit is evicted for nothing.
  if (wanted_slots_ + wanted.slots > capacity_) {
    ++counters_.no_room_units;
    return false;
  }
  if (admission_ && !admission_->pay(wanted.refill_rows)) {
    ++counters_.refused_units;
    return false;
  }
  const double spare = worth_of_it - static_cast<double>(wanted.refill_rows);
  if (!replace_for(wanted, missing_slots(wanted.slots), spare, evicted)) {
    ++counters_.no_room_units;
    if (admission_) admission_->give_back(wanted.refill_rows);
    return false;
  }
  units_[wanted.unit].slots = wanted.slots;
  units_[wanted.unit].free = wanted.refill_rows == 0;
  used_ += wanted.slots;
  wanted_slots_ += wanted.slots;
  replacement_->track(wanted.unit, wanted.slots);
  return true;
}

bool ResidentCache::displace_for(const WantedUnit& wanted, std::vector<UnitKey>& evicted) {
  TERRACE_ASSERT(resident(wanted.unit));
  const double spare = worth(wanted.unit) - static_cast<double>(wanted.refill_rows);
  if (replace_for(wanted, wanted.slots, spare, evicted)) return true;
  if (admission_) admission_->give_back(wanted.refill_rows);
  drop(wanted.unit);
  --counters_.admitted_units;
  counters_.refill_rows -= wanted.refill_rows;
  ++counters_.no_room_units;
  return false;
}

bool ResidentCache::replace_for(const WantedUnit& wanted, std::size_t slots, double spare,
                                std::vector<UnitKey>& evicted) {
  const bool free = wanted.refill_rows == 0;
  // Within a step ever fewer units may be evicted: a search that failed is not repeated.
  double& useless_spare = useless_spare_[free ? 1 : 0];
  if (slots > 0 && spare <= useless_spare) return false;
  bool some_may_go = false;
  const auto evictable = [&](UnitKey unit, double given_up) {
    if (units_[unit].wanted_step == step_) return false;
    const bool may_go = (free && units_[unit].free) || given_up + worth(unit) <= spare;
    some_may_go = some_may_go || may_go;
    return may_go;
  };
  if (make_room(wanted.unit, slots, evictable, evicted)) return true;
  if (!some_may_go) useless_spare = spare;
  return false;
}

bool ResidentCache::make_room(UnitKey incoming, std::size_t slots, Evictable evictable,
                              std::vector<UnitKey>& evicted) {
  const std::size_t first = evicted.size();
  std::size_t freed = 0;
  double given_up = 0;
  const auto may_go = [&](UnitKey unit) {
    return !units_[unit].chosen && evictable(unit, given_up);
  };
  while (freed < slots) {
    const auto victim = replacement_->choose_victim(incoming, may_go);
    if (!victim) break;  // too little may go, or is worth less than what comes
    units_[*victim].chosen = true;
    freed += units_[*victim].slots;
    given_up += worth(*victim);
    evicted.push_back(*victim);
  }
  const auto chosen = std::span(evicted).subspan(first);
  for (const UnitKey unit : chosen) units_[unit].chosen = false;
  if (freed < slots) {
    evicted.resize(first);
    return false;
  }
  for (const UnitKey unit : chosen) evict(unit);
  return true;
}

void ResidentCache::evict(UnitKey unit) {
  replacement_->evict(unit);
  clear_slots(unit);
  ++counters_.evicted_units;
}

void ResidentCache::expire(std::vector<UnitKey>& evicted) {
  while (const auto old = replacement_->expire()) {
    clear_slots(*old);
    evicted.push_back(*old);
    ++counters_.evicted_units;
  }
}

bool ResidentCache::adopt(UnitKey unit, std::uint32_t slots, std::vector<UnitKey>& evicted) {
  TERRACE_ASSERT(!resident(unit));
  const auto any = [](UnitKey, double) { return true; };
  if (slots > capacity_ || !make_room(unit, missing_slots(slots), any, evicted)) return false;
  units_[unit].slots = slots;
  units_[unit].free = false;  // it would not come back for nothing
  used_ += slots;
  replacement_->track(unit, slots);
  ++counters_.adopted_units;
  return true;
}

std::size_t ResidentCache::state_bytes() const noexcept {
  return replacement_->state_bytes() + (admission_ ? admission_->state_bytes() : 0) +
         units_.capacity() * sizeof(Unit) + candidates_.capacity() * sizeof(Candidate) +
         (hits_.capacity() + misses_.capacity()) * sizeof(UnitKey);
}

void ResidentCache::clear_slots(UnitKey unit) noexcept {
  TERRACE_ASSERT(units_[unit].slots != 0);
  used_ -= units_[unit].slots;
  units_[unit].slots = 0;
}

void ResidentCache::forget(UnitKey unit) {
  drop(unit);
  units_[unit].wanted_step = 0;
  replacement_->forget(unit);
  if (admission_) admission_->forget(unit);
}

void ResidentCache::forget_all() {
  for (UnitKey unit = 0; unit < units_.size(); ++unit) forget(unit);
}

void ResidentCache::drop(UnitKey unit) {
  if (!resident(unit)) return;
  replacement_->evict(unit);
  clear_slots(unit);
}

void ResidentCache::drop_from(UnitKey first) {
  for (UnitKey unit = first; unit < units_.size(); ++unit) drop(unit);
}

void ResidentCache::resize(std::size_t capacity_slots, std::vector<UnitKey>& evicted) {
  capacity_ = capacity_slots;
  replacement_->resize({.keys = units_.size(), .slots = capacity_});
  // Victims are evicted one by one: no unit has to fit, so no search need skip earlier victims.
  while (used_ > capacity_) {
    const auto victim = replacement_->choose_victim(no_unit, [](UnitKey) { return true; });
    TERRACE_ASSERT(victim.has_value());
    evict(*victim);
    evicted.push_back(*victim);
  }
}

}  // namespace terrace::policies
