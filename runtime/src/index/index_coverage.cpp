#include "index_coverage.hpp"

#include <algorithm>

namespace terrace {

void IndexCoverage::start(TokenRange built) {
  tokens = built;
  batches.assign(1, built.begin);
  lost_ends.clear();
  trained = built.size();
  fresh_end = built.end;
}

std::size_t IndexCoverage::remembered_from(std::size_t position,
                                           std::size_t indexed_together) const noexcept {
  if (position >= tokens.end || position <= tokens.begin) return position;
  const std::size_t batch = batch_of(position);
  const std::size_t offset = position - tokens.begin;
  return std::max(batch, tokens.begin + offset / indexed_together * indexed_together);
}

std::size_t IndexCoverage::batch_of(std::size_t position) const noexcept {
  return *(std::ranges::upper_bound(batches, position) - 1);
}

std::vector<std::size_t> IndexCoverage::ends_behind(std::size_t end) const {
  std::vector<std::size_t> ends;
  for (const std::size_t begin : batches) {
    if (begin > end) ends.push_back(begin);
  }
  if (tokens.end > end) ends.push_back(tokens.end);
  return ends;
}

void IndexCoverage::end_at(std::size_t end) noexcept {
  tokens.end = std::clamp(end, tokens.begin, tokens.end);
  fresh_end = std::min(fresh_end, tokens.end);
  std::erase_if(batches, [&](std::size_t begin) { return begin >= tokens.end; });
}

}  // namespace terrace
