// Least recently and frequently used: LRFU (Lee et al., IEEE Transactions on Computers 50(12),
// 2001). Each step that wanted a unit counts one, halved every h steps since; a short half-life
// makes it LRU, a long one LFU.
//   touch, miss: one more for each unit, resident or not: an evicted unit keeps its worth track:
//   into the list of its worth choose_victim: the first evictable of the least worth, unless that
//   is worth more than twice
//     the unit that comes
// A unit's worth times 2^(step / h) is constant until the unit is wanted again. The logarithm of
// this product is its rank; units whose ranks agree to a sixteenth of an octave lie in one list,
// oldest use first. A use now has the rank `now_`, and no unit gets a lower one: lists that it
// passes are joined to that of all below, in order, so that every verb is O(1). State: 16 bytes a
// key.
// Needs misses, too. Deterministic.
#include <array>
#include <cmath>

#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

using Rank = std::uint64_t;

constexpr Rank octave = 256;
constexpr Rank list_width = octave / 16;
/// If two uses are farther apart, the older one adds less than a rank can express.
constexpr Rank sum_range = 10 * octave;
/// No unit ranks so high above a use now: more uses add nothing to a worth of 2^10.
constexpr std::size_t lists_above = 16 * octave / list_width;

/// By how much the higher of two ranks so far apart rises where their worths are added.
const std::array<std::uint16_t, sum_range>& rises() {
  static const auto made = [] {
    std::array<std::uint16_t, sum_range> rise{};
    for (std::size_t apart = 0; apart < sum_range; ++apart) {
      const double ratio = std::exp2(-static_cast<double>(apart) / octave);
      rise[apart] = static_cast<std::uint16_t>(std::lround(octave * std::log2(1 + ratio)));
    }
    return rise;
  }();
  return made;
}

class Lrfu final : public ReplacementPolicy {
 public:
  explicit Lrfu(std::size_t half_life) : half_life_(half_life) {}

  void resize(const CacheExtent& extent) override {
    lists_.resize(extent.keys);
    if (extent.keys > units_.size()) units_.resize(extent.keys);
  }

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    Unit& unit = units_[key];
    unit.rank = rank_once_tracked(key) & rank_max;
    unit.tracked = 1;
    lists_.push_newest(list_of(unit.rank), key);
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    begin_step();
    for (const UnitKey key : hits) {
      lists_.remove(key);
      lists_.push_newest(list_of(count_use(key)), key);
    }
  }

  void miss(std::span<const UnitKey> misses) override {
    for (const UnitKey key : misses) count_use(key);
  }

  void forget(UnitKey key) override {
    evict(key);
    units_[key].rank = 0;
  }

  void evict(UnitKey key) override {
    if (units_[key].tracked == 0) return;
    units_[key].tracked = 0;
    lists_.remove(key);
    --size_;
  }

  std::optional<UnitKey> choose_victim(UnitKey incoming,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    auto victim = lists_.oldest_evictable(List::below, evictable);
    for (std::size_t i = 0; !victim && i < lists_above; ++i) {
      victim = lists_.oldest_evictable(list_of(now_ + i * list_width), evictable);
    }
    if (!victim || incoming == no_unit) return victim;
    return units_[*victim].rank <= rank_once_tracked(incoming) + octave ? victim : std::nullopt;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return lists_.bytes() + units_.capacity() * sizeof(Unit);
  }

 private:
  static constexpr Rank rank_max = ~Rank{0} >> 1;  ///< has a bit less than a word
  enum class List : std::uint32_t { below };       ///< the others are a ring, by rank
  struct Unit {
    Rank rank : 63 = 0;
    Rank tracked : 1 = 0;
  };

  static List list_of(Rank rank) noexcept {
    return static_cast<List>(1 + rank / list_width % lists_above);
  }

  /// A unit that becomes resident before any step has wanted it counts as wanted now.
  [[nodiscard]] Rank rank_once_tracked(UnitKey key) const noexcept {
    return std::max<Rank>(units_[key].rank, now_);
  }

  void begin_step() {
    const Rank before = now_;
    ++step_;
    now_ = sum_range + step_ * octave / half_life_;
    for (Rank list = before / list_width; list < now_ / list_width; ++list) {
      lists_.join(List::below, list_of(list * list_width));
    }
  }

  Rank count_use(UnitKey key) {
    Unit& unit = units_[key];
    const Rank higher = std::max<Rank>(unit.rank, now_);
    const Rank apart = higher - std::min<Rank>(unit.rank, now_);
    unit.rank = (higher + (apart < sum_range ? rises_[apart] : 0)) & rank_max;
    return unit.rank;
  }

  std::size_t half_life_;
  std::uint64_t step_ = 0;
  Rank now_ = sum_range;  ///< of a use in this step; far above the rank 0 of units without a use
  const std::array<std::uint16_t, sum_range>& rises_ = rises();
  KeyLists<List, 1 + lists_above> lists_;
  std::vector<Unit> units_;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_lrfu(const ReplacementOptions& options) {
  return std::make_unique<Lrfu>(options.lrfu_half_life);
}

}  // namespace terrace::policies
