// Runs recorded selections through a resident cache: the policies and the mechanism of the live
// runtime, and counters that are exactly those of a live run with the same options, where the
// trace counts no losses (TraceEnd::losses), and a step follows each prompt before it is cut or
// paused.
//
//   const ReplaySetup setup{.cache = options, .block_tokens = reader.head().block_tokens};
//   TERRACE_ASSIGN(auto cutter, TrafficCutter::create(reader.head(), setup.unit()));
//   TERRACE_ASSIGN(auto replay, CacheReplay::create(reader.head(), setup));
//   ...for each record: replay.apply(record, cutter.cut(record));
//   replay.outcome().cache.rows_hit
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "terrace/tuning/costs.hpp"
#include "terrace/tuning/future.hpp"
#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/tuning/row_replay.hpp"

namespace terrace::tuning {

struct ReplaySetup {
  CacheOptions cache;
  std::size_t block_tokens = 0;  ///< 0 = the trace's own
  std::optional<StepCosts> costs = {};
  const RecordedFuture* future = nullptr;  ///< for policies that need it; must outlive the replay

  [[nodiscard]] CacheUnit unit() const noexcept { return {cache.granularity, block_tokens}; }
};

struct ReplayOutcome {
  CacheCounters cache;
  LinkBytes bytes;
  std::uint64_t steps = 0;
  std::uint64_t slot_steps = 0;  ///< slots, summed over layers and steps
  double seconds = 0;            ///< predicted, of all steps; 0 without costs
};

/// Memory   that of the sequences that are open
/// Threads  one at a time
class CacheReplay {
 public:
  /// Errors: invalid_argument from the cache's options.
  [[nodiscard]] static Result<CacheReplay> create(const TraceHead& head, ReplaySetup setup);

  /// `traffic`: what the record was cut into.
  void apply(const TraceRecord& record, const LayerTraffic& traffic);

  [[nodiscard]] ReplayOutcome outcome() const;

  /// Slots per layer of each of so many sequences that share the cache.
  [[nodiscard]] std::size_t slots(std::size_t sharers = 1) const noexcept;

  /// Tokens, of all KV heads, that a slot holds.
  [[nodiscard]] std::size_t slot_tokens() const noexcept;

 private:
  struct Prompt {
    TokenRange tokens;
    std::size_t window_begin = 0;
    std::size_t placed_begin = 0;
    std::size_t slots = 0;  ///< so many of its blocks before the window stayed in device memory
  };
  struct Layer {
    std::unique_ptr<LayerFuture> future;
    std::optional<policies::ResidentCache> cache;
    std::optional<RowReplay> rows;  ///< a cache of rows, in place of one of units
    std::size_t passed = 0;         ///< blocks before it have been offered to the cache
    std::vector<Prompt> prompts;    ///< since the last step or load, in order
    /// Blocks that the last step admitted: a cut or a pause before the next one loses them.
    std::vector<UnitKey> arriving;
  };
  struct Sequence {
    std::size_t sharers = 1;
    std::size_t slots = 0;
    std::vector<Layer> layers;
    std::vector<StepClock> clock;  ///< at most one
  };

  CacheReplay(const TraceHead& head, ReplaySetup setup) : head_(head), setup_(std::move(setup)) {}
  Sequence& sequence(std::uint64_t number);
  void share(Sequence& sequence, std::size_t sharers);
  void resize(Layer& layer, std::size_t slots);
  static void prompt(Sequence& sequence, const TraceRecord& record);
  static void pause(Sequence& sequence);
  static void withdraw_arrivals(Layer& layer);
  void load(Layer& layer, const TraceRecord& record, const LayerTraffic& traffic);
  void close(std::uint64_t number);
  void select(Sequence& sequence, const TraceRecord& record, const LayerTraffic& traffic);
  void prepare(Sequence& sequence, Layer& layer, const TraceRecord& record,
               const LayerTraffic& traffic);
  [[nodiscard]] bool keeps_clusters() const noexcept {
    return head_.has_sizes(setup_.cache.granularity);
  }
  [[nodiscard]] bool lay_in_device_memory(const Layer& layer, std::size_t block) const;
  void adopt_passed(Layer& layer, const LayerTraffic& traffic);
  [[nodiscard]] double upkeep_seconds(const LayerTraffic& traffic) const;
  std::uint64_t step(Layer& layer, const LayerTraffic& traffic);
  /// Counts the rows that the layer finds and misses.
  void select_rows(const Sequence& sequence, Layer& layer, const TraceRecord& record,
                   const LayerTraffic& traffic);
  /// As a cache of units, or none.
  void select_units(Sequence& sequence, Layer& layer, const TraceRecord& record,
                    const LayerTraffic& traffic);
  [[nodiscard]] bool keeps_rows() const noexcept {
    return !setup_.cache.none() && setup_.cache.granularity == CacheGranularity::row;
  }

  TraceHead head_;
  ReplaySetup setup_;
  std::map<std::uint64_t, Sequence> sequences_;
  ReplayOutcome outcome_;
  policies::CachePlan plan_;
  std::vector<UnitKey> evicted_;
};

}  // namespace terrace::tuning
