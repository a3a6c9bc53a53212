#include "last_queries.hpp"

#include <algorithm>
#include <cstring>

namespace terrace {

Status LastQueries::reserve(Backend& backend, const KvShape& shape, std::size_t window) {
  if (window == 0 || !positions_.empty()) return {};
  numbers_ = shape.query_heads * shape.head_dim;
  // Tokens that are rejected, or given up, leave those before them.
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
  const std::size_t window = positions_.size() / 2;
  // Queries of the same positions, of tokens that were rejected, are of no use; nor are those that
  // no token looks back to. Other queries stay, for these tokens may be rejected.
  for (std::size_t& position : positions_) {
    const bool stays = position < tokens.begin && position + window >= tokens.begin;
    if (!stays) position = none;
  }
  const std::size_t first = tokens.end - std::min(window, tokens.size());
  std::size_t free = 0;
  for (std::size_t position = first; position < tokens.end; ++position) {
    free = place_of(none, free);
    extents.push_back(
        {reinterpret_cast<std::byte*>(queries_at(free)),
         reinterpret_cast<const std::byte*>(query + (position - tokens.begin) * stride),
         numbers_ * sizeof(float)});
    positions_[free] = position;
  }
}

std::size_t LastQueries::place_of(std::size_t position, std::size_t from) const noexcept {
  const auto begin = positions_.begin() + static_cast<std::ptrdiff_t>(from);
  return static_cast<std::size_t>(std::find(begin, positions_.end(), position) -
                                  positions_.begin());
}

LastQueries::Run LastQueries::before(std::size_t end) const {
  const std::size_t window = positions_.size() / 2;
  std::vector<std::size_t> places;  // latest first
  for (std::size_t back = 1; back <= std::min(window, end); ++back) {
    const std::size_t place = place_of(end - back, 0);
    if (place == positions_.size()) break;
    places.push_back(place);
  }
  Run run{.first = end - places.size()};
  run.queries.reserve(places.size() * numbers_);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    run.queries.insert(run.queries.end(), queries_at(*place), queries_at(*place) + numbers_);
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
