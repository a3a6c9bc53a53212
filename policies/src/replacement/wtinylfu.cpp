// W-TinyLFU (Einziger, Friedman, Manes, 2017). Every want is counted, resident or not, up to 15;
// all counts are halved once as many wants as ten times the slots have come. Keys are dense, so
// counts are exact where the paper has a sketch.
//   track: into the window (1 % of the slots); what the window cannot hold goes on trial
//   touch: moves to the newest end; what is on trial becomes protected (80 % of the rest), the
//          oldest protected key goes back on trial for it
//   choose_victim: with a full window its oldest key duels with the oldest on trial: the one
//          counted less is chosen, the newcomer where they are equal; with room in the window the
//          oldest on trial, then the oldest protected
//   evict: the key goes, its count stays
// A key that a step has admitted stays for that step, so that all of the step's misses but the
// first are admitted without a duel. With a duel for each miss, which rejects misses that are
// wanted no more often than the victim, wave's clusters had nine percentage points of hits less at
// twice a step's units, and pqcache's blocks one point more. A newcomer that wins its duel is on
// trial from then on, even if the loser stays in the end. For one incoming unit the window is as
// full as before its first victim goes. State: 20 bytes a key. Needs hits, misses and sizes.
// Deterministic.
#include <algorithm>

#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class WTinyLfu final : public ReplacementPolicy {
 public:
  void resize(const CacheExtent& extent) override {
    window_slots_ = std::max<std::size_t>(1, extent.slots / 100);
    protected_slots_ = (extent.slots - std::min(window_slots_, extent.slots)) * 4 / 5;
    wants_per_age_ = std::max<std::size_t>(1, 10 * extent.slots);
    lists_.resize(extent.keys);
    if (extent.keys > units_.size()) units_.resize(extent.keys);
  }

  void track(UnitKey key, std::uint32_t slots) override {
    units_[key].slots = slots;
    put(key, Place::window);
    ++size_;
    while (slots_in(Place::window) > window_slots_)
      move(lists_.oldest(Place::window), Place::trial);
  }

  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      count(key);
      const Place place = units_[key].place;
      move(key, place == Place::trial ? Place::sheltered : place);
      while (slots_in(Place::sheltered) > protected_slots_) {
        move(lists_.oldest(Place::sheltered), Place::trial);
      }
    }
  }

  void miss(std::span<const UnitKey> misses) override {
    for (const UnitKey key : misses) count(key);
  }

  void forget(UnitKey key) override {
    if (units_[key].place != Place::nowhere) evict(key);
    units_[key].wants = 0;
  }

  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    const auto oldest = [&](Place place) { return lists_.oldest_evictable(place, evictable); };
    const bool full = slots_in(Place::window) >= window_slots_;
    const auto newcomer = full ? oldest(Place::window) : std::nullopt;
    auto resident = oldest(Place::trial);
    if (!resident) resident = oldest(Place::sheltered);
    if (!resident) return newcomer ? newcomer : oldest(Place::window);
    if (!newcomer) return resident;
    if (wants(*newcomer) <= wants(*resident)) return newcomer;
    move(*newcomer, Place::trial);
    return resident;
  }

  void evict(UnitKey key) override {
    take_out(key);
    --size_;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return lists_.bytes() + units_.capacity() * sizeof(Unit);
  }

 private:
  enum class Place : std::uint8_t { window, trial, sheltered, nowhere };
  static constexpr std::uint8_t wants_max = 15;

  struct Unit {
    std::uint32_t slots = 0;
    std::uint32_t age = 0;  ///< in which `wants` was last brought up to date
    std::uint8_t wants = 0;
    Place place = Place::nowhere;
  };

  std::size_t& slots_in(Place place) noexcept { return slots_[static_cast<std::size_t>(place)]; }

  [[nodiscard]] std::uint8_t wants(UnitKey key) const noexcept {
    const Unit& unit = units_[key];
    return static_cast<std::uint8_t>(unit.wants >> std::min<std::uint32_t>(age_ - unit.age, 7));
  }

  void count(UnitKey key) {
    if (++wants_in_age_ > wants_per_age_) {
      ++age_;
      wants_in_age_ = 1;
    }
    units_[key].wants = std::min<std::uint8_t>(wants(key) + 1, wants_max);
    units_[key].age = age_;
  }

  void put(UnitKey key, Place place) {
    lists_.push_newest(place, key);
    units_[key].place = place;
    slots_in(place) += units_[key].slots;
  }

  void take_out(UnitKey key) {
    lists_.remove(key);
    slots_in(units_[key].place) -= units_[key].slots;
    units_[key].place = Place::nowhere;
  }

  void move(UnitKey key, Place to) {
    take_out(key);
    put(key, to);
  }

  KeyLists<Place, 3> lists_;
  std::vector<Unit> units_;
  std::size_t slots_[3] = {};
  std::size_t window_slots_ = 1;
  std::size_t protected_slots_ = 0;
  std::size_t wants_per_age_ = 1;
  std::size_t wants_in_age_ = 0;
  std::uint32_t age_ = 0;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_wtinylfu(const ReplacementOptions& /*options*/) {
  return std::make_unique<WTinyLfu>();
}

}  // namespace terrace::policies
