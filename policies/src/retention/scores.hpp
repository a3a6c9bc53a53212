// Scores of positions, as a request has them.
#pragma once

#include <span>
#include <vector>

#include "terrace/core/retention.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace::policies {

/// Returns the scores [length] of a KV head; those of its query heads, if they come apart, summed.
[[nodiscard]] std::vector<float> scores_of(const RetainRequest& request, std::size_t head);

/// Returns the score of each candidate made of those of its neighbours: [candidates]. Neighbours
/// lie at positions up to the last candidate; beyond, an average counts zeros.
[[nodiscard]] std::vector<float> pool(std::span<const float> scores, const Candidates& candidates,
                                      const PoolOptions& options);

}  // namespace terrace::policies
