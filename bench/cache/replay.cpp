// The cost and the hits of a step of the resident cache, on a trace that lies in memory.
#include "terrace/tuning/replay.hpp"

#include <memory>

#include "cache/questions.hpp"
#include "cache/trace.hpp"
#include "terrace/core/version.hpp"
#include "terrace/policies/replacement.hpp"

namespace terrace::bench {
namespace {

/// Capacity: twice what a layer wants in a step.
CacheOptions cache_for(const Trace& trace, std::string_view policy) {
  return {.policy = std::string(policy),
          .admission = "always",
          .granularity = trace.head.cache.granularity,
          .tokens = trace.capacity_tokens(2)};
}

Result<tuning::ReplayOutcome> replay(const Trace& trace, const CacheOptions& cache) {
  TERRACE_ASSIGN(auto replay, tuning::CacheReplay::create(trace.head, {.cache = cache}));
  TERRACE_TRY(trace.each_record(
      [&](const tuning::TraceRecord& record, const tuning::LayerTraffic& traffic) {
        replay.apply(record, traffic);
      }));
  return replay.outcome();
}

Result<Question> question(const std::shared_ptr<const Trace>& trace, std::string_view policy) {
  const CacheOptions cache = cache_for(*trace, policy);
  TERRACE_ASSIGN(const tuning::ReplayOutcome expected, replay(*trace, cache));
  const auto prepare = [trace, cache, expected](bool /*quick*/) -> Result<Contest> {
    const auto hits = std::make_shared<std::uint64_t>(0);
    const auto run = [trace, cache, hits] {
      const auto outcome = replay(*trace, cache);
      *hits = outcome ? outcome->cache.blocks_hit : 0;
    };
    const auto verify = [hits, expected]() -> Status {
      if (*hits == expected.cache.blocks_hit) return {};
      return fail(Errc::corrupt, "{} hits, and {} the first time", *hits,
                  expected.cache.blocks_hit);
    };
    return Contest{.ours = {.name = cache.policy,
                            .version = std::string(version()),
                            .bytes = static_cast<double>(trace->units),
                            .run = run,
                            .verify = verify},
                   .peer = {}};
  };
  const CacheCounters& counted = expected.cache;
  return Question{
      .name = "cache_replay_" + cache.policy,
      .unit = "1/s",
      .better = Better::higher,
      .parameters = {{"threads", 1},
                     {"trace", trace->name},
                     {"units", trace->units},
                     {"truncated", trace->truncated},
                     {"cache_tokens", cache.tokens},
                     {"admission", cache.admission},
                     {"hit_rate_tokens", hit_share(counted.rows_hit, counted.rows_missed)},
                     {"hit_rate_units", hit_share(counted.blocks_hit, counted.blocks_missed)}},
      .prepare = prepare};
}

}  // namespace

Result<std::vector<Question>> replay_questions(const std::shared_ptr<const Trace>& trace) {
  std::vector<Question> questions;
  for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    TERRACE_ASSIGN(Question one, question(trace, entry.name));
    questions.push_back(std::move(one));
  }
  return questions;
}

}  // namespace terrace::bench
