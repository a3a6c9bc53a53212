#include "last_queries.hpp"

#include <algorithm>
#include <cstring>

namespace terrace {

Status LastQueries::reserve(Backend& backend, const KvShape& shape, std::size_t window) {
  if (window == 0 || !positions_.empty()) return {};
  numbers_ = shape.query_heads * shape.head_dim;
  // A draft of up to `window` tokens, all rejected, leaves those before it.
  return allocate(backend, 2 * window);
}

Status LastQueries::allocate(Backend& backend, std::size_t places) {
  const std::size_t bytes = places * numbers_ * sizeof(float);
  TERRACE_ASSIGN(memory_, backend.allocate({.bytes = bytes, .tier = Tier::host}));
  positions_.assign(places, none);
  return {};
}

void LastQueries::list_copies(TokenRange tokens, const float* query, std::size_t stride,
                              std::vector<CopyExtent>& extents) {
  if (positions_.empty()) return;
  // Queries of the same positions, of tokens that were rejected, are of no use.
  for (std::size_t& position : positions_) {
    if (position != none && position >= tokens.begin) position = none;
  }
  const std::size_t window = positions_.size() / 2;
  const std::size_t first = tokens.end - std::min(window, tokens.size());
  for (std::size_t position = first; position < tokens.end; ++position) {
    extents.push_back(
        {reinterpret_cast<std::byte*>(place(position)),
         reinterpret_cast<const std::byte*>(query + (position - tokens.begin) * stride),
         numbers_ * sizeof(float)});
    positions_[position % positions_.size()] = position;
  }
}

LastQueries::Run LastQueries::before(std::size_t end) const {
  Run run{.first = end};
  const std::size_t window = positions_.size() / 2;
  while (run.first > 0 && end - run.first < window &&
         positions_[(run.first - 1) % positions_.size()] == run.first - 1) {
    --run.first;
  }
  run.queries.reserve((end - run.first) * numbers_);
  for (std::size_t position = run.first; position < end; ++position) {
    run.queries.insert(run.queries.end(), place(position), place(position) + numbers_);
  }
  return run;
}

Status LastQueries::copy_from(const LastQueries& other, Backend& backend) {
  if (other.positions_.empty()) return {};
  numbers_ = other.numbers_;
  TERRACE_TRY(allocate(backend, other.positions_.size()));
  positions_ = other.positions_;
  std::memcpy(memory_.data(), other.memory_.data(), memory_.bytes());
  return {};
}

}  // namespace terrace
