#include "scores.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace terrace::policies {

std::vector<float> scores_of(const RetainRequest& request, std::size_t head) {
  const std::size_t rows = request.scores.size() / request.length;  // KV heads, or query heads
  const std::size_t group = rows / request.shape.kv_heads;
  const auto first = request.scores.subspan(head * group * request.length, group * request.length);
  std::vector<float> sums(first.begin(),
                          first.begin() + static_cast<std::ptrdiff_t>(request.length));
  for (std::size_t query = 1; query < group; ++query) {
    const auto row = first.subspan(query * request.length, request.length);
    std::ranges::transform(sums, row, sums.begin(), std::plus{});
  }
  return sums;
}

std::vector<float> pool(std::span<const float> scores, const Candidates& candidates,
                        const PoolOptions& options) {
  const std::size_t reach = options.width / 2;
  const std::size_t end = candidates.size() == 0 ? 0 : candidates.positions.back() + std::size_t{1};
  std::vector<float> pooled;
  pooled.reserve(candidates.size());
  for (const std::size_t position : candidates.positions) {
    const std::size_t first = position - std::min(position, reach);
    const auto near = scores.subspan(first, std::min(end, position + reach + 1) - first);
    pooled.push_back(options.kind == PoolKind::max
                         ? *std::ranges::max_element(near)
                         : std::accumulate(near.begin(), near.end(), 0.0F) /
                               static_cast<float>(options.width));
  }
  return pooled;
}

}  // namespace terrace::policies
