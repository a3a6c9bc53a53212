#include "terrace/tuning/open_units.hpp"

#include <algorithm>

namespace terrace::tuning {

OpenUnits::OpenUnits(const TraceHead& head)
    : layers_(head.shape.layers),
      block_tokens_(head.unit == TraceUnit::cluster
                        ? 0
                        : std::min(head.block_tokens, smallest_block_tokens)) {}

void OpenUnits::add(const TraceRecord& record) {
  const bool closes = record.kind == TraceRecord::Kind::close;
  auto its = sequences_.find(record.sequence);
  if (its == sequences_.end()) {
    if (closes) return;
    its = sequences_.emplace(record.sequence, std::vector<std::size_t>(layers_, layer_units)).first;
    count_ += layers_ * layer_units;
  }
  if (closes) {
    for (const std::size_t units : its->second) count_ -= units;
    sequences_.erase(its);
    return;
  }
  const std::size_t named = units_of(record);
  if (named == 0) return;  // other records are of no layer
  const std::size_t units = layer_units + named;
  std::size_t& most = its->second[record.layer];
  if (units <= most) return;
  count_ += units - most;
  most = units;
}

std::size_t OpenUnits::units_of(const TraceRecord& record) const noexcept {
  const bool selects = record.kind == TraceRecord::Kind::selection;
  const bool of_step = selects || record.kind == TraceRecord::Kind::abandon;
  if (!of_step && record.kind != TraceRecord::Kind::load) return 0;
  std::size_t units = 0;
  if (of_step && block_tokens_ > 0) units = record.position / block_tokens_ + 1;
  const auto take = [&](UnitKey unit) { units = std::max(units, unit + std::size_t{1}); };
  if (selects && !record.units.empty()) take(record.units.back().unit);
  // Lost ones may be above what any step names.
  std::ranges::for_each(record.dropped, take);
  if (of_step) std::ranges::for_each(record.dropped_late, take);
  return units;
}

}  // namespace terrace::tuning
