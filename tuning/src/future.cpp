#include "terrace/tuning/future.hpp"

#include <algorithm>

#include "terrace/core/assert.hpp"

namespace terrace::tuning {

void RecordedFuture::add(const TraceRecord& record, const LayerTraffic& traffic) {
  if (record.kind != TraceRecord::Kind::selection) return;
  Wants& wants = wants_[{record.sequence, record.layer}];
  wants.step_begin.push_back(wants.units.size());
  for (const offload::WantedUnit& each : traffic.wanted) wants.units.push_back(each.unit);
}

const RecordedFuture::Wants& RecordedFuture::of(std::uint64_t sequence, std::size_t layer) const {
  const auto found = wants_.find({sequence, layer});
  TERRACE_ASSERT(found != wants_.end());
  return found->second;
}

LayerFuture::LayerFuture(const RecordedFuture::Wants& wants)
    : wants_(wants), behind_(wants.units.size()) {
  const UnitKey last = wants.units.empty() ? 0 : std::ranges::max(wants.units);
  next_.assign(std::size_t{last} + 1, never);
  std::uint64_t step = wants.step_begin.size();
  for (std::size_t i = wants.units.size(); i-- > 0;) {
    while (step > 0 && wants.step_begin[step - 1] > i) --step;
    behind_[i] = next_[wants.units[i]];
    next_[wants.units[i]] = step - 1;
  }
}

void LayerFuture::advance() {
  const std::size_t begin = wants_.step_begin[step_];
  const std::size_t end =
      ++step_ < wants_.step_begin.size() ? wants_.step_begin[step_] : wants_.units.size();
  for (std::size_t i = begin; i < end; ++i) next_[wants_.units[i]] = behind_[i];
}

}  // namespace terrace::tuning
