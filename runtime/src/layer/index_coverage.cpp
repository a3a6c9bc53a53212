#include "index_coverage.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

IndexCoverage IndexCoverage::of(State saved) {
  IndexCoverage coverage;
  coverage.tokens_ = saved.tokens;
  coverage.batches_ = std::move(saved.batches);
  coverage.trained_ = saved.trained;
  coverage.fresh_end_ = saved.fresh_end;
  coverage.note_coded();
  coverage.begin_draft();
  return coverage;
}

void IndexCoverage::start(TokenRange built) {
  tokens_ = built;
  batches_.assign(1, built.begin);
  lost_ends_.clear();
  trained_ = built.size();
  fresh_end_ = built.end;
}

void IndexCoverage::clear() noexcept {
  tokens_ = {};
  lost_ends_.clear();
}

void IndexCoverage::extend_to(std::size_t end, bool as_batch) {
  if (as_batch) batches_.push_back(tokens_.end);
  tokens_.end = end;
}

std::size_t IndexCoverage::remembered_from(std::size_t position,
                                           std::size_t indexed_together) const noexcept {
  if (position >= tokens_.end || position <= tokens_.begin) return position;
  const std::size_t batch = batch_of(position);
  const std::size_t offset = position - tokens_.begin;
  return std::max(batch, tokens_.begin + offset / indexed_together * indexed_together);
}

std::size_t IndexCoverage::batch_of(std::size_t position) const noexcept {
  if (position <= tokens_.begin) return tokens_.begin;
  return *(std::ranges::upper_bound(batches_, position) - 1);
}

std::vector<std::size_t> IndexCoverage::ends_behind(std::size_t end) const {
  std::vector<std::size_t> ends;
  for (const std::size_t begin : batches_) {
    if (begin > end) ends.push_back(begin);
  }
  if (tokens_.end > end) ends.push_back(tokens_.end);
  return ends;
}

void IndexCoverage::end_at(std::size_t end) noexcept {
  tokens_.end = std::clamp(end, tokens_.begin, tokens_.end);
  fresh_end_ = std::min(fresh_end_, tokens_.end);
  std::erase_if(batches_, [&](std::size_t begin) { return begin >= tokens_.end; });
}

void IndexCoverage::lose(std::span<const std::size_t> ends) {
  lost_ends_.insert(lost_ends_.begin(), ends.begin(), ends.end());
}

void IndexCoverage::find_first_lost() { lost_ends_.erase(lost_ends_.begin()); }

void IndexCoverage::forget_lost_behind(std::size_t end) {
  std::erase_if(lost_ends_, [&](std::size_t lost) { return lost > end; });
}

}  // namespace terrace
