#include "terrace/tuning/layer_traffic.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace::tuning {

Result<TrafficCutter> TrafficCutter::create(const TraceHead& head, std::size_t block_tokens) {
  if (block_tokens == 0 || (head.unit != TraceUnit::token && block_tokens != head.block_tokens)) {
    return fail(Errc::invalid_argument,
                "a trace of {}s of {} tokens cannot serve blocks of {}; record one with terrace "
                "run --trace",
                to_string(head.unit), head.block_tokens, block_tokens);
  }
  return TrafficCutter(head, block_tokens);
}

const LayerTraffic& TrafficCutter::cut(const TraceRecord& record) {
  wanted_.clear();
  traffic_ = {};
  const bool selects = record.kind == TraceRecord::Kind::selection;
  if (!selects && record.kind != TraceRecord::Kind::load) return traffic_;
  traffic_.window_begin = record.window_begin / block_tokens_;
  if (!selects) return traffic_;
  traffic_.middle_begin = divide_up(record.sinks_end, block_tokens_);
  if (head_.unit == TraceUnit::token) {
    cut_tokens(record);
  } else {
    cut_units(record);
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

void TrafficCutter::cut_units(const TraceRecord& record) {
  const bool clusters = head_.unit == TraceUnit::cluster;
  const auto block_rows = static_cast<std::uint32_t>(block_tokens_ * head_.shape.kv_heads);
  traffic_.resident_rows = clusters ? record.rows_resident : 0;
  for (const SelectedUnit& each : record.units) {
    const std::uint32_t rows = clusters ? each.size_rows : block_rows;
    const auto slots = clusters ? static_cast<std::uint32_t>(divide_up(rows, head_.slot_rows)) : 1U;
    // Of a cluster, what a step has fetched anyway is in device memory.
    wanted_.push_back({.unit = each.unit,
                       .rows_wanted = each.rows,
                       .slots = slots,
                       .refill_rows = clusters ? rows - std::min(rows, each.rows) : rows});
  }
  if (!record.units.empty()) traffic_.keys = record.units.back().unit + std::size_t{1};
  traffic_.keys = std::max(traffic_.keys, clusters ? 0 : traffic_.window_begin);
}

}  // namespace terrace::tuning
