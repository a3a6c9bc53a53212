// ARC (Megiddo and Modha, FAST 2003). Resident keys wanted once (`recent`) or more (`frequent`),
// and as many that went lately from either, remembered without their rows:
//   miss: a key that went from `recent` raises the target size of `recent`, by the ratio of what is
//         remembered of both sides; one that went from `frequent` lowers it
//   track: a remembered key becomes frequent, any other recent      touch: becomes frequent
//   choose_victim: the oldest of `recent` while that is above its target (at it, for a key
//          remembered as frequent), else of `frequent`      evict: the key is remembered
//   recent + its memory hold at most the capacity; all four at most twice that
// For one incoming unit sides are as full as before its first victim goes. State: 16 bytes a key.
// Needs hits, misses and sizes. Deterministic.
#include <algorithm>

#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Arc final : public ReplacementPolicy {
 public:
  void resize(const CacheExtent& extent) override {
    capacity_ = extent.slots;
    recent_target_ = std::min(recent_target_, static_cast<double>(capacity_));
    lists_.resize(extent.keys);
    if (extent.keys > units_.size()) units_.resize(extent.keys);
    forget_too_old();
  }

  void track(UnitKey key, std::uint32_t slots) override {
    const bool remembered = is_memory(units_[key].place);
    if (remembered) take_out(key);
    units_[key].slots = slots;
    put(key, remembered ? Place::frequent : Place::recent);
    ++size_;
    forget_too_old();
  }

  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      take_out(key);
      put(key, Place::frequent);
    }
  }

  void miss(std::span<const UnitKey> misses) override {
    for (const UnitKey key : misses) {
      const auto was_recent = static_cast<double>(slots_in(Place::was_recent));
      const auto was_frequent = static_cast<double>(slots_in(Place::was_frequent));
      if (units_[key].place == Place::was_recent) {
        recent_target_ = std::min(static_cast<double>(capacity_),
                                  recent_target_ + std::max(1.0, was_frequent / was_recent));
      } else if (units_[key].place == Place::was_frequent) {
        recent_target_ = std::max(0.0, recent_target_ - std::max(1.0, was_recent / was_frequent));
      }
    }
  }

  void forget(UnitKey key) override {
    if (units_[key].place == Place::nowhere) return;
    if (!is_memory(units_[key].place)) --size_;
    take_out(key);
  }

  std::optional<UnitKey> choose_victim(UnitKey incoming,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    const Place place = incoming == no_unit ? Place::nowhere : units_[incoming].place;
    const auto recent = static_cast<double>(slots_in(Place::recent));
    const bool from_recent =
        recent > 0 &&
        (recent > recent_target_ || (place == Place::was_frequent && recent == recent_target_));
    const Place first = from_recent ? Place::recent : Place::frequent;
    if (const auto victim = lists_.oldest_evictable(first, evictable)) return victim;
    // All of that side may be wanted by this step.
    return lists_.oldest_evictable(from_recent ? Place::frequent : Place::recent, evictable);
  }

  void evict(UnitKey key) override {
    const bool recent = units_[key].place == Place::recent;
    take_out(key);
    put(key, recent ? Place::was_recent : Place::was_frequent);
    --size_;
    forget_too_old();
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return lists_.bytes() + units_.capacity() * sizeof(Unit);
  }

 private:
  enum class Place : std::uint8_t { recent, frequent, was_recent, was_frequent, nowhere };
  struct Unit {
    std::uint32_t slots = 0;
    Place place = Place::nowhere;
  };

  static bool is_memory(Place place) noexcept {
    return place == Place::was_recent || place == Place::was_frequent;
  }
  std::size_t& slots_in(Place place) noexcept { return slots_[static_cast<std::size_t>(place)]; }

  void put(UnitKey key, Place place) {
    units_[key].place = place;
    lists_.push_newest(place, key);
    slots_in(place) += units_[key].slots;
  }

  void take_out(UnitKey key) {
    lists_.remove(key);
    slots_in(units_[key].place) -= units_[key].slots;
    units_[key].place = Place::nowhere;
  }

  void forget_too_old() {
    while (slots_in(Place::recent) + slots_in(Place::was_recent) > capacity_ &&
           !lists_.empty(Place::was_recent)) {
      take_out(lists_.oldest(Place::was_recent));
    }
    while (slots_[0] + slots_[1] + slots_[2] + slots_[3] > 2 * capacity_ &&
           !lists_.empty(Place::was_frequent)) {
      take_out(lists_.oldest(Place::was_frequent));
    }
  }

  KeyLists<Place, 4> lists_;
  std::vector<Unit> units_;
  std::size_t slots_[4] = {};
  std::size_t capacity_ = 0;
  double recent_target_ = 0;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_arc(const ReplacementOptions& /*options*/) {
  return std::make_unique<Arc>();
}

}  // namespace terrace::policies
