// S3-FIFO (Yang et al., SOSP 2023). Two queues and the memory of a third:
//   track: at the newest end of `small` (10 % of the slots), or of `main` if `ghost` remembers it,
//          or if `small` is full before anything had to go
//   touch: count one more use, at most 3
//   choose_victim: while `main` is above its 90 %, or `small` is empty, from `main`: the oldest
//          with uses left goes round once more for one of them, the first without is chosen; else
//          from `small`: what was used twice moves to `main`, the first of the rest is chosen
//   evict: what goes from `small` is remembered by `ghost` (as many slots as `main`)
// For one incoming unit queues are as full as before its first victim goes. Rounds and moves of a
// search stay, even if what it found stays in the end. State: 20 bytes a key. Needs hits and sizes.
// Deterministic.
#include <algorithm>

#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class S3Fifo final : public ReplacementPolicy {
 public:
  void resize(const CacheExtent& extent) override {
    small_slots_ = extent.slots / 10;
    main_slots_ = extent.slots - small_slots_;
    queues_.resize(extent.keys);
    if (extent.keys > units_.size()) units_.resize(extent.keys);
    recalled_.reserve(extent.keys);
  }

  void track(UnitKey key, std::uint32_t slots) override {
    // `ghost` still has what comes without having been missed.
    const bool in_ghost = units_[key].place == Place::ghost;
    if (in_ghost) take_out(key);
    const bool remembered = in_ghost || units_[key].place == Place::recalled;
    units_[key].slots = slots;
    // Until something had to go, `small` need not be tried for longer than it is large.
    const bool on_trial = evicted_ || slots_in(Place::small) < small_slots_;
    put(key, remembered || !on_trial ? Place::main : Place::small);
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : recalled_) {
      if (units_[key].place == Place::recalled) put(key, Place::ghost);  // it was not admitted
    }
    recalled_.clear();
    for (const UnitKey key : hits) {
      std::uint8_t& uses = units_[key].uses;
      uses = std::min<std::uint8_t>(uses + 1, uses_max);
    }
  }

  void miss(std::span<const UnitKey> misses) override {
    // Before anything is evicted, which could push them out of `ghost`.
    for (const UnitKey key : misses) {
      if (units_[key].place != Place::ghost) continue;
      take_out(key);
      units_[key].place = Place::recalled;
      recalled_.push_back(key);
    }
  }

  void forget(UnitKey key) override {
    const Place place = units_[key].place;
    if (place == Place::small || place == Place::main) --size_;
    if (place == Place::nowhere || place == Place::recalled) {
      units_[key].place = Place::nowhere;
    } else {
      take_out(key);
    }
  }

  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    const bool main_first = slots_in(Place::main) > main_slots_ || queues_.empty(Place::small);
    auto victim = main_first ? victim_in_main(evictable) : victim_in_small(evictable);
    // Promotions may have emptied one queue, and a step may need all of the other.
    if (!victim) victim = victim_in_main(evictable);
    if (!victim) victim = victim_in_small(evictable);
    return victim;
  }

  void evict(UnitKey key) override {
    evicted_ = true;
    --size_;
    const Place from = units_[key].place;
    take_out(key);
    if (from == Place::main) return;
    put(key, Place::ghost);
    while (slots_in(Place::ghost) > main_slots_) take_out(queues_.oldest(Place::ghost));
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return queues_.bytes() + units_.capacity() * sizeof(Unit) +
           recalled_.capacity() * sizeof(UnitKey);
  }

 private:
  enum class Place : std::uint8_t { small, main, ghost, recalled, nowhere };
  static constexpr std::uint8_t uses_max = 3;
  static constexpr std::uint8_t uses_to_stay = 2;

  struct Unit {
    std::uint32_t slots = 0;
    std::uint8_t uses = 0;
    Place place = Place::nowhere;
  };

  std::size_t& slots_in(Place place) noexcept { return slots_[static_cast<std::size_t>(place)]; }

  void put(UnitKey key, Place place) {
    queues_.push_newest(place, key);
    units_[key].place = place;
    units_[key].uses = 0;
    slots_in(place) += units_[key].slots;
  }

  void take_out(UnitKey key) {
    queues_.remove(key);
    slots_in(units_[key].place) -= units_[key].slots;
    units_[key].place = Place::nowhere;
  }

  std::optional<UnitKey> victim_in_main(FunctionRef<bool(UnitKey)> evictable) {
    // Each round takes a use from every key that may be evicted; after uses_max rounds the first
    // key has no use left.
    for (int round = 0; round <= uses_max; ++round) {
      const UnitKey last = queues_.newest(Place::main);
      UnitKey key = queues_.oldest(Place::main);
      for (bool more = key != no_unit; more;) {
        const UnitKey next = queues_.newer(key);
        more = key != last;
        if (evictable(key)) {
          if (units_[key].uses == 0) return key;
          const auto uses = static_cast<std::uint8_t>(units_[key].uses - 1);
          take_out(key);
          put(key, Place::main);
          units_[key].uses = uses;
        }
        key = next;
      }
    }
    return std::nullopt;
  }

  std::optional<UnitKey> victim_in_small(FunctionRef<bool(UnitKey)> evictable) {
    UnitKey next = no_unit;
    for (UnitKey key = queues_.oldest(Place::small); key != no_unit; key = next) {
      next = queues_.newer(key);
      if (!evictable(key)) continue;
      if (units_[key].uses < uses_to_stay) return key;
      take_out(key);
      put(key, Place::main);
    }
    return std::nullopt;
  }

  KeyLists<Place, 3> queues_;
  std::vector<Unit> units_;
  std::vector<UnitKey> recalled_;  ///< by this step's misses, out of `ghost`
  std::size_t slots_[3] = {};
  std::size_t small_slots_ = 0;
  std::size_t main_slots_ = 0;
  bool evicted_ = false;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_s3fifo(const ReplacementOptions& /*options*/) {
  return std::make_unique<S3Fifo>();
}

}  // namespace terrace::policies
