#include "terrace/tuning/trace_extent.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace::tuning {

void ExtentCounter::add(const TraceRecord& record) {
  units_.add(record);
  extent_.keys = std::max(extent_.keys, units_.count());
  switch (record.kind) {
    case TraceRecord::Kind::share:
      extent_.sharers = std::max(extent_.sharers, record.sharers);
      break;
    case TraceRecord::Kind::close:
      erase_sequence(layers_, record.sequence);
      break;
    case TraceRecord::Kind::selection:
      if (slot_rows_ > 0) count_clusters(layers_[{record.sequence, record.layer}], record);
      break;
    case TraceRecord::Kind::prompt:
    case TraceRecord::Kind::step_end:
    case TraceRecord::Kind::pause:
    case TraceRecord::Kind::load:
      break;
  }
}

void ExtentCounter::count_clusters(Layer& layer, const TraceRecord& record) {
  if (record.renamed) {
    layer.slots.clear();
    layer.total = 0;
  }
  if (record.units.empty()) return;
  const std::size_t keys = record.units.back().unit + std::size_t{1};
  if (layer.slots.size() < keys) layer.slots.resize(keys);
  for (const SelectedUnit& each : record.units) {
    const auto slots = static_cast<std::uint32_t>(divide_up(each.size_rows, slot_rows_));
    std::uint32_t& most = layer.slots[each.unit];
    if (slots <= most) continue;
    layer.total += slots - most;
    most = slots;
  }
  extent_.cluster_slots = std::max(extent_.cluster_slots, layer.total);
}

}  // namespace terrace::tuning
