#include "terrace/tuning/open_units.hpp"

#include <algorithm>

namespace terrace::tuning {

OpenUnits::OpenUnits(const TraceHead& head)
    : layers_(head.recorded_layers()),
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
  if (record.kind == TraceRecord::Kind::selection) {
    wanted_ += std::max(record.units.size(), record.positions.size());
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
  if (record.kind != TraceRecord::Kind::selection) return 0;
  const std::size_t blocks = block_tokens_ > 0 ? record.position / block_tokens_ + 1 : 0;
  return record.units.empty() ? blocks
                              : std::max(blocks, record.units.back().unit + std::size_t{1});
}

}  // namespace terrace::tuning
