// Traces made to order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "terrace/core/rng.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

struct MadeUp {
  TraceUnit unit = TraceUnit::block;
  const char* policy = "";
  std::size_t layers = 2;
  std::size_t units = 200;
  std::size_t wanted = 12;  ///< units a layer and step
  std::size_t steps = 100;
  double stays = 0.8;  ///< share of a step's units that the next one wants too
  std::uint64_t seed = 1;
  bool clusters = unit == TraceUnit::cluster;  ///< of tokens: besides them
};

inline TraceHead made_up_head(const MadeUp& made) {
  return {.unit = made.unit,
          .source = "generator",
          .policy = made.policy,
          .budget = "0.1",
          .shape = {.layers = made.layers, .query_heads = 2, .kv_heads = 2, .head_dim = 16},
          .block_tokens = 8,
          .slot_rows = made.clusters ? 16U : 0U,
          .selected_tokens = 32,
          .context_tokens = made.units * 8,
          .cache = {.granularity = made.unit == TraceUnit::cluster && *made.policy != '\0'
                                       ? CacheGranularity::cluster
                                       : CacheGranularity::block}};
}

/// Writes a trace with drifting selections: some units stay, others are drawn again.
inline void write_made_up(const std::filesystem::path& path, const MadeUp& made) {
  auto writer = TraceWriter::create(path, made_up_head(made)).value();
  Rng rng(made.seed);
  std::vector<std::vector<UnitKey>> wanted(made.layers);
  TraceRecord record;
  for (std::size_t step = 0; step < made.steps; ++step) {
    for (std::size_t layer = 0; layer < made.layers; ++layer) {
      auto& units = wanted[layer];
      std::erase_if(units, [&](UnitKey) { return rng.uniform() >= made.stays; });
      while (units.size() < made.wanted) {
        const auto unit = static_cast<UnitKey>(rng.below(made.units));
        if (std::ranges::count(units, unit) == 0) units.push_back(unit);
      }
      std::ranges::sort(units);
      record.kind = TraceRecord::Kind::selection;
      record.layer = layer;
      record.position = made.units * 8 + step;
      record.window_begin = 0;
      record.units.clear();
      for (const UnitKey unit : units) {
        record.units.push_back({.unit = unit,
                                .rows = static_cast<std::uint32_t>(1 + rng.below(16)),
                                .size_rows = 16 + unit % 40});
      }
      writer.append(record);
    }
    record.kind = TraceRecord::Kind::step_end;
    record.index_bytes = 100;
    writer.append(record);
  }
  const Status finished = writer.finish(std::nullopt);
  ASSERT_TRUE(finished.has_value()) << finished.error().message();
}

/// Counts a record's positions by clusters of neighbours, as far as blocks hold nothing else.
inline std::vector<SelectedUnit> made_up_clusters(const TraceHead& head,
                                                  const TraceRecord& record) {
  constexpr std::uint32_t cluster_tokens = 12;
  const std::size_t end = record.window_begin / head.block_tokens * head.block_tokens;
  std::map<UnitKey, std::uint32_t> rows;
  const std::uint32_t* position = record.positions.data();
  for (std::size_t kv_head = 0; kv_head < record.head_counts.size(); ++kv_head) {
    for (std::uint32_t i = 0; i < record.head_counts[kv_head]; ++i, ++position) {
      if (*position >= end) continue;
      const std::size_t cluster = *position / cluster_tokens;
      ++rows[static_cast<UnitKey>(cluster * head.shape.kv_heads + kv_head)];
    }
  }
  std::vector<SelectedUnit> units;
  for (const auto& [unit, count] : rows) {
    units.push_back({.unit = unit, .rows = count, .size_rows = cluster_tokens});
  }
  return units;
}

/// Writes a trace of tokens, which can be converted to blocks of any size: runs of neighbours that
/// drift, as selections of attention do.
inline void write_made_up_tokens(const std::filesystem::path& path, const MadeUp& made) {
  constexpr std::size_t window = 16;
  constexpr std::size_t run_tokens = 5;
  TraceHead head = made_up_head(made);
  head.unit = TraceUnit::token;
  head.window_tokens = window;
  auto writer = TraceWriter::create(path, head).value();
  Rng rng(made.seed);
  const std::size_t prompt = made.units * 8;
  std::vector<std::vector<std::size_t>> runs(made.layers * head.shape.kv_heads);
  TraceRecord record;
  for (std::size_t step = 0; step < made.steps; ++step) {
    for (std::size_t layer = 0; layer < made.layers; ++layer) {
      record = {.kind = TraceRecord::Kind::selection,
                .layer = layer,
                .position = prompt + step,
                .window_begin = prompt + step - window};
      for (std::size_t kv_head = 0; kv_head < head.shape.kv_heads; ++kv_head) {
        auto& begins = runs[layer * head.shape.kv_heads + kv_head];
        std::erase_if(begins, [&](std::size_t) { return rng.uniform() >= made.stays; });
        while (begins.size() < made.wanted) {
          // Some places are wanted more than others.
          const double place = rng.uniform() * rng.uniform();
          begins.push_back(static_cast<std::size_t>(
              place * static_cast<double>(record.window_begin - run_tokens)));
        }
        std::set<std::uint32_t> positions;
        for (const std::size_t begin : begins) {
          for (std::size_t i = 0; i < run_tokens; ++i) {
            positions.insert(static_cast<std::uint32_t>(begin + i));
          }
        }
        record.head_counts.push_back(static_cast<std::uint32_t>(positions.size()));
        record.positions.insert(record.positions.end(), positions.begin(), positions.end());
      }
      if (made.clusters) record.units = made_up_clusters(head, record);
      writer.append(record);
    }
    record = {.kind = TraceRecord::Kind::step_end, .index_bytes = 100};
    writer.append(record);
  }
  const Status finished = writer.finish(std::nullopt);
  ASSERT_TRUE(finished.has_value()) << finished.error().message();
}

}  // namespace terrace::tuning
