// What a step of the resident cache costs and hits, on a trace that lies in memory.
#include "terrace/tuning/replay.hpp"

#include <algorithm>
#include <memory>

#include "cache/questions.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/core/version.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::bench {
namespace {

constexpr std::uint64_t selections_max = 2'000'000;

struct Trace {
  std::string name;
  tuning::TraceHead head;
  std::vector<tuning::TraceRecord> records;
  std::uint64_t units = 0;
};

/// Selections of 100 of 1,024 blocks that drift: a quarter of them is drawn anew at each step.
Trace made_up_trace(bool quick) {
  constexpr std::size_t blocks = 1024;
  constexpr std::size_t wanted = 100;
  Trace trace{.name = "made up",
              .head = {.unit = tuning::TraceUnit::block,
                       .shape = {.layers = 2, .query_heads = 32, .kv_heads = 8, .head_dim = 128},
                       .block_tokens = 32,
                       .selected_tokens = 1024}};
  Rng rng(1);
  std::vector<std::vector<UnitKey>> layers(trace.head.shape.layers);
  for (std::size_t step = 0; step < (quick ? 50U : 1000U); ++step) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      auto& units = layers[layer];
      std::erase_if(units, [&](UnitKey) { return rng.below(4) == 0; });
      while (units.size() < wanted) {
        const double place = rng.uniform();
        const auto unit = static_cast<UnitKey>(
            (step / 8 + static_cast<std::size_t>(place * place * place * (blocks - 1))) % blocks);
        if (std::ranges::count(units, unit) == 0) units.push_back(unit);
      }
      std::ranges::sort(units);
      tuning::TraceRecord record{.layer = layer};
      for (const UnitKey unit : units) {
        record.units.push_back(
            {.unit = unit, .rows = static_cast<std::uint32_t>(1 + rng.below(80))});
      }
      trace.units += units.size();
      trace.records.push_back(std::move(record));
    }
  }
  return trace;
}

Result<Trace> read_trace(const std::string& file) {
  TERRACE_ASSIGN(tuning::TraceReader reader, tuning::TraceReader::open(file));
  TERRACE_ASSIGN(tuning::TrafficCutter cutter,
                 tuning::TrafficCutter::create(reader.head(), reader.head().block_tokens));
  Trace trace{.name = file, .head = reader.head()};
  for (tuning::TraceRecord record; trace.units < selections_max;) {
    TERRACE_ASSIGN(const bool more, reader.next(record));
    if (!more) break;
    if (record.kind == tuning::TraceRecord::Kind::selection) {
      trace.units += cutter.cut(record).wanted.size();
    }
    trace.records.push_back(record);
  }
  return trace;
}

/// Capacity: twice what a layer wants in a step.
CacheOptions cache_for(const Trace& trace, std::string_view policy) {
  const auto selections = static_cast<std::uint64_t>(std::ranges::count(
      trace.records, tuning::TraceRecord::Kind::selection, &tuning::TraceRecord::kind));
  const std::uint64_t units = 2 * trace.units / std::max<std::uint64_t>(1, selections);
  return {.policy = std::string(policy),
          .admission = "always",
          .tokens = std::max<std::size_t>(1, units) * trace.head.block_tokens};
}

Result<tuning::ReplayOutcome> replay(const Trace& trace, const CacheOptions& cache) {
  TERRACE_ASSIGN(auto replay, tuning::CacheReplay::create(trace.head, {.cache = cache}));
  TERRACE_ASSIGN(auto cutter, tuning::TrafficCutter::create(trace.head, trace.head.block_tokens));
  const tuning::LayerTraffic nothing;
  for (const tuning::TraceRecord& record : trace.records) {
    const bool selects = record.kind == tuning::TraceRecord::Kind::selection;
    replay.apply(record, selects ? cutter.cut(record) : nothing);
  }
  return replay.outcome();
}

double share(std::uint64_t part, std::uint64_t other) {
  return part + other == 0 ? 0 : static_cast<double>(part) / static_cast<double>(part + other);
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
                     {"cache_tokens", cache.tokens},
                     {"admission", cache.admission},
                     {"hit_rate_tokens", share(counted.rows_hit, counted.rows_missed)},
                     {"hit_rate_units", share(counted.blocks_hit, counted.blocks_missed)}},
      .prepare = prepare};
}

}  // namespace

Result<std::vector<Question>> replay_questions(const std::string& file, bool quick) {
  auto trace = std::make_shared<Trace>();
  if (file.empty()) {
    *trace = made_up_trace(quick);
  } else {
    TERRACE_ASSIGN(*trace, read_trace(file));
  }
  std::vector<Question> questions;
  for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    TERRACE_ASSIGN(Question one, question(trace, entry.name));
    questions.push_back(std::move(one));
  }
  return questions;
}

}  // namespace terrace::bench
