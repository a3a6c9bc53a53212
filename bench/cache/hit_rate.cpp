// The hits and the moved bytes of caches on one trace: policies of the runtime, which decide over a
// step at once, the textbook's LRU, which decides over one unit after the other, and the bound.
#include <algorithm>

#include "cache/itemwise_lru.hpp"
#include "cache/questions.hpp"
#include "terrace/core/version.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/tuning/optimum.hpp"
#include "terrace/tuning/replay.hpp"

namespace terrace::bench {
namespace {

constexpr const char* itemwise_name = "itemwise_lru";

/// How large a cache is, and what it is called by: a count of what a layer's step takes.
struct Capacity {
  std::string name;
  std::size_t tokens = 0;
  const char* counted = "";
  std::size_t times = 0;
};

struct HitFigures {
  double hit_rate_tokens = 0;
  double hit_rate_units = 0;
  std::uint64_t demand_bytes = 0;
  std::uint64_t refill_bytes = 0;
  double hit_rate_tokens_bound = 1;  ///< no cache of as many slots passes it
};

CacheOptions cache_of(const Trace& trace, std::string_view policy, const Capacity& capacity) {
  return {.policy = std::string(policy),
          .admission = "always",
          .granularity = trace.head.cache.granularity,
          .tokens = capacity.tokens};
}

Result<tuning::RecordedFuture> future_of(const Trace& trace) {
  tuning::RecordedFuture future;
  TERRACE_TRY(trace.each_record(
      [&](const auto& record, const auto& traffic) { future.add(record, traffic); }));
  return future;
}

Result<HitFigures> step_atomic(const Trace& trace, const policies::ReplacementEntry& entry,
                               const Capacity& capacity) {
  tuning::RecordedFuture future;
  if (entry.needs_foresight) {
    TERRACE_ASSIGN(future, future_of(trace));
  }
  TERRACE_ASSIGN(auto replay,
                 tuning::CacheReplay::create(
                     trace.head, {.cache = cache_of(trace, entry.name, capacity),
                                  .future = entry.needs_foresight ? &future : nullptr}));
  tuning::OptimumBound bound(trace.head, trace.head.recorded().granularity);
  TERRACE_TRY(trace.each_record([&](const auto& record, const auto& traffic) {
    replay.apply(record, traffic);
    bound.add(record, traffic);
  }));
  const tuning::ReplayOutcome outcome = replay.outcome();
  const auto rows = static_cast<double>(outcome.cache.rows_hit + outcome.cache.rows_missed);
  return HitFigures{hit_share(outcome.cache.rows_hit, outcome.cache.rows_missed),
                    hit_share(outcome.cache.blocks_hit, outcome.cache.blocks_missed),
                    outcome.bytes.demand, outcome.bytes.refill,
                    bound.rows_hit(outcome.slot_steps) / std::max(1.0, rows)};
}

Result<HitFigures> itemwise(const Trace& trace, const Capacity& capacity) {
  // As many slots as a policy of the runtime has.
  TERRACE_ASSIGN(const auto peer, tuning::CacheReplay::create(
                                      trace.head, {.cache = cache_of(trace, "lru", capacity)}));
  ItemwiseReplay replay(trace.head, peer.slots());
  TERRACE_TRY(trace.each_record(
      [&](const auto& record, const auto& traffic) { replay.apply(record, traffic); }));
  const ItemwiseCounters& counted = replay.counters();
  const std::size_t row_bytes = trace.head.shape.row_bytes() * trace.head.layers_per_record();
  return HitFigures{hit_share(counted.rows_hit, counted.rows_missed),
                    hit_share(counted.units_hit, counted.units_missed),
                    counted.rows_missed * row_bytes, counted.refill_rows * row_bytes};
}

void fill(Row& row, const HitFigures& figures, const Trace& trace) {
  row.value = figures.hit_rate_tokens;
  row.parameters["hit_rate_units"] = figures.hit_rate_units;
  row.parameters["demand_bytes"] = figures.demand_bytes;
  row.parameters["refill_bytes"] = figures.refill_bytes;
  row.samples = trace.units;
}

Question question(const std::shared_ptr<const Trace>& trace, std::string_view policy,
                  const Capacity& capacity) {
  return {.name = fmt::format("cache_hit_rate_{}_{}", policy, capacity.name),
          .unit = "share",
          .better = Better::higher,
          .parameters = {{"trace", trace->name},
                         {"units", trace->units},
                         {"truncated", trace->truncated},
                         {"cache_tokens", capacity.tokens},
                         {capacity.counted, capacity.times},
                         {"admission", "always"}},
          .prepare = {}};
}

Question of_policy(const std::shared_ptr<const Trace>& trace,
                   const policies::ReplacementEntry& entry, const Capacity& capacity) {
  Question asked = question(trace, entry.name, capacity);
  asked.parameters["offline"] = entry.needs_foresight;
  asked.count = [trace, entry, capacity](Row& row) -> Status {
    TERRACE_ASSIGN(const HitFigures figures, step_atomic(*trace, entry, capacity));
    fill(row, figures, *trace);
    // Belady's rule is no bound for whole steps; what no cache passes is a relaxation
    // (optimum.hpp).
    if (entry.needs_foresight) {
      row.parameters["hit_rate_tokens_bound"] = figures.hit_rate_tokens_bound;
    }
    if (entry.name != "lru") return {};
    TERRACE_ASSIGN(const HitFigures rival, itemwise(*trace, capacity));
    row.peer = PeerFigure{itemwise_name, std::string(version()), rival.hit_rate_tokens};
    return {};
  };
  return asked;
}

Question of_itemwise(const std::shared_ptr<const Trace>& trace, const Capacity& capacity) {
  Question asked = question(trace, itemwise_name, capacity);
  asked.parameters["offline"] = false;
  asked.count = [trace, capacity](Row& row) -> Status {
    TERRACE_ASSIGN(const HitFigures figures, itemwise(*trace, capacity));
    fill(row, figures, *trace);
    return {};
  };
  return asked;
}

std::vector<Capacity> capacities_of(const Trace& trace, std::size_t cache_tokens) {
  if (cache_tokens != 0) {
    const std::size_t slots = cache_tokens / trace.head.slot_tokens(trace.head.recorded());
    return {{fmt::format("{}_tokens", cache_tokens), cache_tokens, "slots", slots}};
  }
  std::vector<Capacity> capacities;
  for (const std::size_t times : {1U, 2U}) {
    capacities.push_back(
        {fmt::format("{}x", times), trace.capacity_tokens(times), "steps_of_units", times});
  }
  if (trace.head.selected_tokens == 0) return capacities;  // of a trace that no run recorded
  for (const std::size_t times : {1U, 2U}) {
    capacities.push_back({fmt::format("{}x_selected", times), trace.selected_capacity_tokens(times),
                          "steps_of_selected_tokens", times});
  }
  return capacities;
}

}  // namespace

std::vector<Question> hit_rate_questions(const std::shared_ptr<const Trace>& trace,
                                         std::size_t cache_tokens) {
  std::vector<Question> questions;
  for (const Capacity& capacity : capacities_of(*trace, cache_tokens)) {
    for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
      questions.push_back(of_policy(trace, entry, capacity));
    }
    questions.push_back(of_itemwise(trace, capacity));
  }
  return questions;
}

}  // namespace terrace::bench
