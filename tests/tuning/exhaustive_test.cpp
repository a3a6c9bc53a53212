// The tuner against a search that leaves nothing out.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/temporary_folder.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/tuning/tuner.hpp"
#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {
namespace {

constexpr double tolerance = 1.03;

/// Every setting of a replacement policy, a third apart.
std::vector<policies::ReplacementOptions> settings_of(std::string_view policy) {
  std::vector<policies::ReplacementOptions> settings{{}};
  const auto setting = policies::replacement_setting(policy);
  if (!setting) return settings;
  const std::size_t most = std::min<std::size_t>(512, setting->high);
  for (std::size_t value = 1; value <= most; value += divide_up(value, 3)) {
    settings.emplace_back().*setting->value = value;
  }
  return settings;
}

/// Every cache without its capacity: all policies, and of admission all horizons that differ much.
std::vector<CacheOptions> all_choices() {
  std::vector<CacheOptions> choices;
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    for (const policies::ReplacementOptions& setting : settings_of(entry.name)) {
      CacheOptions cache{
          .policy = std::string(entry.name), .admission = "always", .replacement = setting};
      choices.push_back(cache);
      cache.admission = "refill";
      for (int horizon = 2; horizon <= 4096; horizon *= 2) {
        cache.refill.horizon_steps = horizon;
        choices.push_back(cache);
      }
    }
  }
  return choices;
}

/// Capacities up to `most`: all small ones, then a tenth apart.
std::vector<std::size_t> all_slots(std::size_t most) {
  std::vector<std::size_t> slots;
  for (std::size_t each = most; each > 0; each -= 1 + each / 10) slots.push_back(each);
  return slots;
}

/// A trace with its selections cut once, in memory.
struct Cut {
  struct Step {
    TraceRecord record;
    LayerTraffic traffic;
    std::vector<policies::WantedUnit> wanted;
  };
  TraceHead head;
  CacheUnit unit;
  std::vector<Step> steps;
};

Cut cut(const std::filesystem::path& file, const CacheUnit& unit) {
  auto reader = TraceReader::open(file).value();
  auto cutter = TrafficCutter::create(reader.head(), unit).value();
  Cut result{.head = reader.head(), .unit = unit};
  for (TraceRecord record; reader.next(record).value();) {
    Cut::Step& step = result.steps.emplace_back(Cut::Step{.record = record});
    if (record.kind != TraceRecord::Kind::selection) continue;
    step.traffic = cutter.cut(record);
    step.wanted.assign(step.traffic.wanted.begin(), step.traffic.wanted.end());
  }
  for (Cut::Step& step : result.steps) step.traffic.wanted = step.wanted;
  return result;
}

double seconds_per_token(const Cut& trace, const CacheOptions& cache, const StepCosts& costs) {
  auto replay =
      CacheReplay::create(trace.head,
                          {.cache = cache, .block_tokens = trace.unit.block_tokens, .costs = costs})
          .value();
  for (const Cut::Step& step : trace.steps) replay.apply(step.record, step.traffic);
  const ReplayOutcome outcome = replay.outcome();
  return outcome.seconds / static_cast<double>(outcome.steps);
}

struct Best {
  double seconds = std::numeric_limits<double>::infinity();
  CacheOptions cache;
  CacheUnit unit;
  std::size_t tried = 0;
};

/// Slots that all units take which some layer ever wants: a larger cache is never filled.
std::size_t slots_ever_wanted(const Cut& trace) {
  std::map<std::size_t, std::map<UnitKey, std::size_t>> wanted;  // by layer
  for (const Cut::Step& step : trace.steps) {
    for (const policies::WantedUnit& each : step.wanted) {
      std::size_t& slots = wanted[step.record.layer][each.unit];
      slots = std::max<std::size_t>(slots, each.slots);
    }
  }
  std::size_t most = 0;
  for (const auto& [layer, units] : wanted) {
    std::size_t slots = 0;
    for (const auto& [unit, its] : units) slots += its;
    most = std::max(most, slots);
  }
  return most;
}

/// Returns the slots that fit beside sinks, window and the tables of a made-up trace (no run has
/// measured more memory than these).
std::size_t slots_of_memory(const Cut& trace, const TraceEnd& end, std::size_t device_memory) {
  const TraceHead& head = trace.head;
  const bool sized = head.has_sizes(trace.unit.granularity);
  const std::size_t tokens = trace.unit.block_tokens;
  const std::size_t token_bytes = head.shape.layers * head.shape.token_bytes();
  const std::size_t blocks = divide_up(head.sink_tokens, tokens) + 1 +
                             divide_up(head.window_tokens, tokens) + (sized ? 1U : 0U);
  const std::size_t pointers = head.shape.layers * 16 * divide_up(end.last_position + 1, tokens);
  const std::size_t taken = blocks * tokens * token_bytes + pointers;
  if (taken >= device_memory) return 0;
  std::size_t slot_bytes = head.slot_tokens(trace.unit) * token_bytes;
  if (trace.unit.granularity == CacheGranularity::row) {
    const std::size_t states = head.shape.layers * tokens * head.shape.kv_heads * sizeof(RowSlot);
    slot_bytes += states + states / 4;
  }
  return (device_memory - taken) / slot_bytes;
}

/// The tuner's own: what a run measured beside its rows says how much of the memory is left.
std::size_t most_slots_tried(const TuneResult& tuned, const CacheUnit& unit) {
  std::size_t most = 0;
  for (const TunedRow& row : tuned.rows) {
    if (row.unit() == unit) most = std::max(most, row.slots);
  }
  return most;
}

/// All that the trace can serve.
std::vector<CacheUnit> all_units(const TraceHead& head) {
  std::vector<CacheUnit> units;
  for (const std::size_t tokens : {8U, 16U, 32U, 64U, 128U}) {
    for (const auto granularity : {CacheGranularity::block, CacheGranularity::cluster}) {
      if (head.serves({granularity, tokens})) units.push_back({granularity, tokens});
    }
  }
  const CacheUnit rows{CacheGranularity::row, head.block_tokens};
  if (head.serves(rows)) units.push_back(rows);
  return units;
}

/// Tries every choice with capacities that fit, in all units, and what the tuner has tried.
Best search_everything(const std::filesystem::path& file, const TuneResult& tuned,
                       const TuneRequest& request) {
  const StepCosts& costs = request.costs;
  Best best;
  for (const CacheUnit& unit : all_units(tuned.head)) {
    const Cut trace = cut(file, unit);
    const std::size_t slots_max =
        std::min(slots_ever_wanted(trace),
                 tuned.end.run ? most_slots_tried(tuned, unit)
                               : slots_of_memory(trace, tuned.end, request.device_memory));
    const auto attempt = [&, of = unit](CacheOptions cache) {
      cache.granularity = of.granularity;
      const double seconds = seconds_per_token(trace, cache, costs);
      ++best.tried;
      if (seconds >= best.seconds) return;
      best = {.seconds = seconds, .cache = cache, .unit = of, .tried = best.tried};
    };
    attempt({.policy = "none"});
    for (const TunedRow& row : tuned.rows) {
      if (!row.offline && row.unit() == unit) attempt(row.cache);
    }
    for (CacheOptions cache : all_choices()) {
      // The device replaces rows by itself.
      if (unit.granularity == CacheGranularity::row && cache.policy != "lru") continue;
      for (const std::size_t slots : all_slots(slots_max)) {
        cache.tokens = slots * tuned.head.slot_tokens(trace.unit);
        attempt(cache);
      }
    }
  }
  return best;
}

struct Setting {
  const char* name;
  TraceUnit unit;
  std::size_t device_memory;
  StepCosts costs;
  double stays;
  bool clusters = unit == TraceUnit::cluster;
  const char* recorded = nullptr;  ///< a run's trace in place of one that is made up
};

constexpr StepCosts slow_link{
    .link = {.bandwidth_bytes_per_second = 1e7}, .select_seconds = 1e-5, .attend_seconds = 1e-5};
constexpr StepCosts fast_link{
    .link = {.bandwidth_bytes_per_second = 1e9}, .select_seconds = 1e-5, .attend_seconds = 1e-5};
constexpr StepCosts late_copies{
    .link = {.bandwidth_bytes_per_second = 1e9, .latency = std::chrono::microseconds{20}},
    .select_seconds = 1e-6,
    .attend_seconds = 1e-6};

constexpr StepCosts with_upkeep{
    .link = {.bandwidth_bytes_per_second = 1e8, .latency = std::chrono::microseconds{20}},
    .select_seconds = 1e-5,
    .attend_seconds = 1e-5,
    .upkeep = {.none = {.row_seconds = 1e-9},
               .blocks = {.row_seconds = 1e-9, .unit_seconds = 1e-7},
               .clusters = {.row_seconds = 2e-9, .unit_seconds = 4e-7}}};

class Exhaustive : public testing::TestWithParam<Setting> {
 protected:
  std::filesystem::path trace() {
    const Setting& its = GetParam();
    if (its.recorded != nullptr) return std::filesystem::path(TERRACE_TUNING_DATA) / its.recorded;
    const MadeUp made{.unit = its.unit,
                      .units = 48,
                      .wanted = its.unit == TraceUnit::token ? 4U : 8U,
                      .steps = 80,
                      .stays = its.stays,
                      .clusters = its.clusters};
    if (its.unit == TraceUnit::token) {
      write_made_up_tokens(folder_ / "t", made);
    } else {
      write_made_up(folder_ / "t", made);
    }
    return folder_ / "t";
  }

 private:
  TemporaryFolder folder_;
};

TEST_P(Exhaustive, TheTunersPickCostsAtMostThreePercentMoreThanTheBestThereIs) {
  const Setting& its = GetParam();
  const std::filesystem::path file = trace();
  const TuneRequest request{.trace = file, .device_memory = its.device_memory, .costs = its.costs};
  const TuneResult tuned = tune(request, *offload::make_parallel({.threads = 1}).value()).value();
  const Best best = search_everything(file, tuned, request);
  const TunedRow& pick = tuned.recommended();
  RecordProperty("tried", static_cast<int>(best.tried));
  RecordProperty("over_the_best", fmt::format("{:.4f}", pick.seconds_per_token() / best.seconds));
  EXPECT_GT(best.tried, 10 * tuned.rows.size()) << "the search left most of it out";
  EXPECT_LE(pick.seconds_per_token(), tolerance * best.seconds)
      << describe(pick) << "; the best is "
      << describe({.cache = best.cache, .block_tokens = best.unit.block_tokens});
  EXPECT_GE(pick.seconds_per_token(), best.seconds) << "the search missed something";
}

INSTANTIATE_TEST_SUITE_P(
    Tuner, Exhaustive,
    testing::Values(
        Setting{"tokens_slow_link", TraceUnit::token, 60'000, slow_link, 0.8},
        Setting{"tokens_fast_link", TraceUnit::token, 60'000, fast_link, 0.8},
        Setting{"tokens_late_copies", TraceUnit::token, 40'000, late_copies, 0.5},
        Setting{"tokens_restless", TraceUnit::token, 60'000, slow_link, 0.1},
        Setting{"tokens_and_clusters", TraceUnit::token, 40'000, slow_link, 0.8, true},
        Setting{"blocks_nothing_stays", TraceUnit::block, 60'000, slow_link, 0},
        Setting{"blocks_slow_link", TraceUnit::block, 40'000, slow_link, 0.8},
        Setting{"blocks_restless", TraceUnit::block, 40'000, slow_link, 0.1},
        Setting{"clusters_fast_link", TraceUnit::cluster, 40'000, fast_link, 0.9},
        Setting{"clusters_restless", TraceUnit::cluster, 40'000, slow_link, 0.2},
        Setting{"clusters_all_fit", TraceUnit::cluster, 400'000, slow_link, 0.2},
        Setting{"wave_upkeep", TraceUnit::token, 1'100'000, with_upkeep, 0, true, "wave.trace"},
        Setting{"wave_small", TraceUnit::token, 800'000, slow_link, 0, true, "wave.trace"}),
    [](const auto& its) { return its.param.name; });

}  // namespace
}  // namespace terrace::tuning
