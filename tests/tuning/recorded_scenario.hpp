// Scenarios that are recorded, and their counters held against those of a replay.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/tuning/replay.hpp"
#include "terrace/tuning/trace_file.hpp"
#include "tuning/same_cache.hpp"

namespace terrace::tuning {

using terrace::testing::Drive;
using terrace::testing::Scenario;
using terrace::testing::Traffic;

inline Scenario recorded_scenario(const CacheOptions& cache) {
  Scenario scenario;
  scenario.runtime.policy = "oracle";
  scenario.runtime.budget.value = 60;
  scenario.runtime.cache = cache;
  return scenario;
}

inline Scenario clustered_scenario(const std::string& policy, const CacheOptions& cache) {
  Scenario scenario = recorded_scenario(cache);
  scenario.runtime.policy = policy;
  scenario.runtime.retrieval.clusterkv.tokens_per_cluster = 20;
  return scenario;
}

inline TraceHead head_of(const Scenario& scenario) {
  const RuntimeOptions& options = scenario.runtime;
  const bool clusters = std::ranges::count(testing::clustering_policies(), options.policy) != 0;
  return {.unit = TraceUnit::token,
          .shape = options.shape,
          .placement = options.placement,
          .block_tokens = options.block_tokens,
          .slot_rows = clusters ? cluster_slot_rows(options.shape, options.block_tokens) : 0,
          .sink_tokens = options.sink_tokens,
          .window_tokens = 28,
          .selected_tokens = 28,
          .cache = options.cache};
}

inline ReplayOutcome replay_of(const std::filesystem::path& file, ReplaySetup setup) {
  auto reader = TraceReader::open(file).value();
  if (setup.block_tokens == 0) setup.block_tokens = reader.head().block_tokens;
  auto replay = CacheReplay::create(reader.head(), setup).value();
  auto cutter = TrafficCutter::create(reader.head(), setup.unit()).value();
  for (TraceRecord record; reader.next(record).value();) {
    replay.apply(record, cutter.cut(record));
  }
  return replay.outcome();
}

inline void add(const SequenceCounters& one, SequenceCounters& sum) {
  sum.cache.rows_hit += one.cache.rows_hit;
  sum.cache.rows_missed += one.cache.rows_missed;
  sum.cache.rows_resident += one.cache.rows_resident;
  sum.cache.blocks_hit += one.cache.blocks_hit;
  sum.cache.blocks_missed += one.cache.blocks_missed;
  sum.cache.admitted += one.cache.admitted;
  sum.cache.adopted += one.cache.adopted;
  sum.cache.evicted += one.cache.evicted;
  sum.cache.refused += one.cache.refused;
  sum.bytes.demand += one.bytes.demand;
  sum.bytes.refill += one.bytes.refill;
  sum.bytes.index += one.bytes.index;
  sum.steps += one.steps;
  sum.prompt_steps += one.prompt_steps;
}

/// Compares all counters but bytes of indexes, because no step moved index bytes.
inline void expect_same_cache(const ReplayOutcome& replayed, const SequenceCounters& live) {
  expect_same_counters(replayed.cache, live.cache);
  EXPECT_EQ(replayed.bytes.demand, live.bytes.demand);
  EXPECT_EQ(replayed.bytes.refill, live.bytes.refill);
  EXPECT_EQ(replayed.steps, live.steps - live.prompt_steps);
}

inline void expect_equal(const ReplayOutcome& replayed, const SequenceCounters& live) {
  expect_same_cache(replayed, live);
  EXPECT_EQ(replayed.bytes.index, live.bytes.index);
}

}  // namespace terrace::tuning
