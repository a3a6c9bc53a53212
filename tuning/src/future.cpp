#include "terrace/tuning/future.hpp"

#include <algorithm>
#include <utility>

#include "terrace/core/assert.hpp"

namespace terrace::tuning {

void RecordedFuture::add(const TraceRecord& record, const LayerTraffic& traffic) {
  if (record.kind != TraceRecord::Kind::selection || !complete()) return;
  Wants& wants = wants_[{record.sequence, record.layer}];
  if (traffic.renamed) wants.renamed.push_back(wants.step_begin.size());
  wants.step_begin.push_back(wants.units.size());
  for (const policies::WantedUnit& each : traffic.wanted) wants.units.push_back(each.unit);
  selections_ += traffic.wanted.size();
}

const RecordedFuture::Wants& RecordedFuture::of(std::uint64_t sequence, std::size_t layer) const {
  const auto found = wants_.find({sequence, layer});
  TERRACE_ASSERT(found != wants_.end());
  return found->second;
}

LayerFuture::LayerFuture(const RecordedFuture::Wants& wants) : wants_(wants) {
  const UnitKey last = wants.units.empty() ? 0 : std::ranges::max(wants.units);
  next_.resize(std::size_t{last} + 1);
  look_ahead();
}

std::size_t LayerFuture::begin_of(std::size_t step) const noexcept {
  return step < wants_.step_begin.size() ? wants_.step_begin[step] : wants_.units.size();
}

void LayerFuture::look_ahead() {
  const auto renamed = std::ranges::upper_bound(wants_.renamed, step_);
  names_end_ = renamed == wants_.renamed.end() ? wants_.step_begin.size() : *renamed;
  first_ = begin_of(step_);
  behind_.resize(begin_of(names_end_) - first_);
  std::ranges::fill(next_, never);
  for (std::size_t step = names_end_; step-- > step_;) {
    for (std::size_t i = begin_of(step); i < begin_of(step + 1); ++i) {
      behind_[i - first_] = std::exchange(next_[wants_.units[i]], step);
    }
  }
}

void LayerFuture::advance() {
  if (step_ == names_end_) look_ahead();
  const std::size_t end = begin_of(step_ + 1);
  for (std::size_t i = begin_of(step_); i < end; ++i) {
    next_[wants_.units[i]] = behind_[i - first_];
  }
  ++step_;
}

}  // namespace terrace::tuning
