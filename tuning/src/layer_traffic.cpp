#include "terrace/tuning/layer_traffic.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace::tuning {

Result<TrafficCutter> TrafficCutter::create(const TraceHead& head, const CacheUnit& unit) {
  if (head.serves(unit)) return TrafficCutter(head, unit);
  const bool clusters = unit.granularity == CacheGranularity::cluster;
  if (clusters && !head.serves({unit.granularity, head.block_tokens})) {
    return fail(Errc::invalid_argument,
                "the trace has no clusters to cache; record one of a policy that has them, as "
                "clusterkv and wave, with terrace run --trace");
  }
  if (unit.granularity == CacheGranularity::row) {
    return fail(Errc::invalid_argument,
                "the trace names {}s and no rows to cache; record one with terrace run --trace",
                to_string(head.unit));
  }
  const auto words = [](bool are_clusters) {
    return are_clusters ? "clusters in blocks" : "blocks";
  };
  return fail(
      Errc::invalid_argument,
      "the trace has {} of {} tokens and cannot serve {} of {}; record one with terrace run "
      "--trace",
      words(head.has_clusters()), head.block_tokens, words(clusters), unit.block_tokens);
}

const LayerTraffic& TrafficCutter::cut(const TraceRecord& record) {
  wanted_.clear();
  traffic_ = {};
  const bool selects = record.kind == TraceRecord::Kind::selection;
  if (!selects && record.kind != TraceRecord::Kind::load) return traffic_;
  traffic_.window_begin = record.window_begin / block_tokens_;
  if (!selects) return traffic_;
  traffic_.middle_begin = divide_up(record.sinks_end, block_tokens_);
  if (sized_) {
    take_clusters(record);
  } else if (granularity_ == CacheGranularity::row) {
    take_rows(record);
  } else if (head_.unit == TraceUnit::token) {
    cut_tokens(record);
  } else {
    take_blocks(record);
  }
  traffic_.wanted = wanted_;
  return traffic_;
}

bool TrafficCutter::is_resident(const TraceRecord& record, std::size_t block) const noexcept {
  const std::size_t begin = block * block_tokens_;
  const std::size_t end = begin + block_tokens_;
  if (head_.placement == Placement::offload) {
    return begin < record.sinks_end || end > record.window_begin;
  }
  return end <= record.resident_head * head_.block_tokens ||
         begin >= record.resident_tail * head_.block_tokens;
}

void TrafficCutter::cut_tokens(const TraceRecord& record) {
  traffic_.keys = record.position / block_tokens_ + 1;
  rows_.assign(traffic_.keys, 0);
  for (const std::uint32_t position : record.positions) ++rows_[position / block_tokens_];
  const auto refill_rows = static_cast<std::uint32_t>(block_tokens_ * head_.shape.kv_heads);
  for (std::size_t block = 0; block < rows_.size(); ++block) {
    if (rows_[block] == 0) continue;
    if (is_resident(record, block)) {
      traffic_.resident_rows += rows_[block];
      continue;
    }
    wanted_.push_back({.unit = static_cast<UnitKey>(block),
                       .rows_wanted = rows_[block],
                       .refill_rows = refill_rows});
  }
}

void TrafficCutter::take_rows(const TraceRecord& record) {
  const auto heads = static_cast<UnitKey>(head_.shape.kv_heads);
  traffic_.keys = (record.position + 1) * heads;
  std::size_t end = 0;
  std::size_t i = 0;
  for (UnitKey head = 0; head < record.head_counts.size(); ++head) {
    for (end += record.head_counts[head]; i < end; ++i) {
      const std::uint32_t position = record.positions[i];
      if (is_resident(record, position / block_tokens_)) {
        ++traffic_.resident_rows;
      } else {
        wanted_.push_back({.unit = position * heads + head, .rows_wanted = 1});
      }
    }
  }
}

void TrafficCutter::take_blocks(const TraceRecord& record) {
  const auto refill_rows = static_cast<std::uint32_t>(block_tokens_ * head_.shape.kv_heads);
  for (const SelectedUnit& each : record.units) {
    wanted_.push_back({.unit = each.unit, .rows_wanted = each.rows, .refill_rows = refill_rows});
  }
  if (!record.units.empty()) traffic_.keys = record.units.back().unit + std::size_t{1};
  traffic_.keys = std::max(traffic_.keys, traffic_.window_begin);
}

void TrafficCutter::take_clusters(const TraceRecord& record) {
  traffic_.renamed = record.renamed;
  traffic_.resident_rows = record.positions.size();
  for (const SelectedUnit& each : record.units) {
    // Rows that a step has fetched anyway are in device memory.
    wanted_.push_back(
        {.unit = each.unit,
         .rows_wanted = each.rows,
         .slots = static_cast<std::uint32_t>(divide_up(each.size_rows, head_.slot_rows)),
         .refill_rows = each.size_rows - std::min(each.size_rows, each.rows)});
    if (head_.unit == TraceUnit::token) traffic_.resident_rows -= each.rows;
  }
  if (!record.units.empty()) traffic_.keys = record.units.back().unit + std::size_t{1};
}

}  // namespace terrace::tuning
