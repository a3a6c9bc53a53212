// The textbook's least recently used: units are looked up, moved to the front or admitted one after
// the other, so that a step's first misses may push out what the same step wants later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "terrace/tuning/layer_traffic.hpp"

namespace terrace::bench {

/// A cache of one layer of one sequence.
class ItemwiseLru {
 public:
  explicit ItemwiseLru(std::size_t slots) : slots_(slots) {}

  /// Makes a unit the newest. Returns whether it was there; if not, it is admitted where it fits.
  bool touch(UnitKey unit, std::size_t slots);

  /// Drops the units from `first` on.
  void drop_from(UnitKey first);

  [[nodiscard]] bool holds(UnitKey unit) const { return places_.contains(unit); }

 private:
  struct Entry {
    UnitKey unit;
    std::size_t slots;
  };

  std::size_t slots_;
  std::size_t used_ = 0;
  std::list<Entry> uses_;  ///< from old to new
  std::unordered_map<UnitKey, std::list<Entry>::iterator> places_;
};

struct ItemwiseCounters {
  std::uint64_t rows_hit = 0;
  std::uint64_t rows_missed = 0;
  std::uint64_t units_hit = 0;
  std::uint64_t units_missed = 0;
  std::uint64_t refill_rows = 0;
};

/// Replays a trace through item-wise caches, which like the runtime's take blocks over for nothing
/// as these leave the window.
class ItemwiseReplay {
 public:
  ItemwiseReplay(const tuning::TraceHead& head, std::size_t slots) : head_(head), slots_(slots) {}

  void apply(const tuning::TraceRecord& record, const tuning::LayerTraffic& traffic);

  [[nodiscard]] const ItemwiseCounters& counters() const noexcept { return counters_; }

 private:
  struct Layer {
    ItemwiseLru cache;
    std::size_t passed = 0;  ///< blocks before it have been offered
  };

  void load(Layer& layer, const tuning::LayerTraffic& traffic) const;
  void adopt_passed(Layer& layer, const tuning::LayerTraffic& traffic) const;
  [[nodiscard]] bool keeps_clusters() const { return head_.has_sizes(head_.cache.granularity); }

  const tuning::TraceHead& head_;
  std::size_t slots_;
  tuning::ByLayer<Layer> layers_;
  ItemwiseCounters counters_;
};

}  // namespace terrace::bench
