// What caches hit and move on one trace: policies of the runtime, which decide over a step at once,
// the textbook's LRU, which decides over one unit after the other, and the bound.
#include <algorithm>

#include "cache/itemwise_lru.hpp"
#include "cache/questions.hpp"
#include "terrace/core/version.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/tuning/replay.hpp"

namespace terrace::bench {
namespace {

constexpr const char* itemwise_name = "itemwise_lru";

struct HitFigures {
  double hit_rate_tokens = 0;
  double hit_rate_units = 0;
  std::uint64_t demand_bytes = 0;
  std::uint64_t refill_bytes = 0;
};

CacheOptions cache_of(const Trace& trace, std::string_view policy, std::size_t times) {
  return {
      .policy = std::string(policy), .admission = "always", .tokens = trace.capacity_tokens(times)};
}

Result<tuning::RecordedFuture> future_of(const Trace& trace) {
  tuning::RecordedFuture future;
  TERRACE_TRY(trace.each_record([&](const auto& record, const auto& traffic) {
    if (record.kind == tuning::TraceRecord::Kind::selection) future.add(record, traffic);
  }));
  return future;
}

Result<HitFigures> step_atomic(const Trace& trace, const policies::ReplacementEntry& entry,
                               std::size_t times) {
  tuning::RecordedFuture future;
  if (entry.needs_foresight) {
    TERRACE_ASSIGN(future, future_of(trace));
  }
  TERRACE_ASSIGN(auto replay,
                 tuning::CacheReplay::create(
                     trace.head, {.cache = cache_of(trace, entry.name, times),
                                  .future = entry.needs_foresight ? &future : nullptr}));
  TERRACE_TRY(trace.each_record(
      [&](const auto& record, const auto& traffic) { replay.apply(record, traffic); }));
  const tuning::ReplayOutcome outcome = replay.outcome();
  return HitFigures{hit_share(outcome.cache.rows_hit, outcome.cache.rows_missed),
                    hit_share(outcome.cache.blocks_hit, outcome.cache.blocks_missed),
                    outcome.bytes.demand, outcome.bytes.refill};
}

Result<HitFigures> itemwise(const Trace& trace, std::size_t times) {
  // As many slots as a policy of the runtime has.
  TERRACE_ASSIGN(const auto peer,
                 tuning::CacheReplay::create(trace.head, {.cache = cache_of(trace, "lru", times)}));
  ItemwiseReplay replay(trace.head, peer.slots());
  TERRACE_TRY(trace.each_record(
      [&](const auto& record, const auto& traffic) { replay.apply(record, traffic); }));
  const ItemwiseCounters& counted = replay.counters();
  const std::size_t row_bytes = trace.head.shape.row_bytes();
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
                  std::size_t times) {
  return {.name = fmt::format("cache_hit_rate_{}_{}x", policy, times),
          .unit = "share",
          .better = Better::higher,
          .parameters = {{"trace", trace->name},
                         {"units", trace->units},
                         {"truncated", trace->truncated},
                         {"cache_tokens", trace->capacity_tokens(times)},
                         {"steps_of_units", times},
                         {"admission", "always"}},
          .prepare = {}};
}

Question of_policy(const std::shared_ptr<const Trace>& trace,
                   const policies::ReplacementEntry& entry, std::size_t times) {
  Question asked = question(trace, entry.name, times);
  asked.parameters["offline"] = entry.needs_foresight;
  asked.count = [trace, entry, times](Row& row) -> Status {
    TERRACE_ASSIGN(const HitFigures figures, step_atomic(*trace, entry, times));
    fill(row, figures, *trace);
    if (entry.name != "lru") return {};
    TERRACE_ASSIGN(const HitFigures rival, itemwise(*trace, times));
    row.peer = PeerFigure{itemwise_name, std::string(version()), rival.hit_rate_tokens};
    return {};
  };
  return asked;
}

Question of_itemwise(const std::shared_ptr<const Trace>& trace, std::size_t times) {
  Question asked = question(trace, itemwise_name, times);
  asked.parameters["offline"] = false;
  asked.count = [trace, times](Row& row) -> Status {
    TERRACE_ASSIGN(const HitFigures figures, itemwise(*trace, times));
    fill(row, figures, *trace);
    return {};
  };
  return asked;
}

}  // namespace

std::vector<Question> hit_rate_questions(const std::shared_ptr<const Trace>& trace) {
  std::vector<Question> questions;
  for (const std::size_t times : {1U, 2U}) {
    for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
      questions.push_back(of_policy(trace, entry, times));
    }
    questions.push_back(of_itemwise(trace, times));
  }
  return questions;
}

}  // namespace terrace::bench
