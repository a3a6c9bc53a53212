// The attention weights of a step in one layer, as they reach the host.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kept_entries.hpp"
#include "position_scores.hpp"
#include "terrace/core/backend.hpp"

namespace terrace {

/// The tokens that the columns of an op's weights are of, in this order.
struct WeightColumns {
  TokenRange sinks;
  TokenRange window;
  const std::vector<EntryList>* entries = nullptr;  ///< [kv_heads]; null = none

  /// Columns of the longest list.
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t most = 0;
    for (std::size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
      most = std::max(most, (*entries)[i].size());
    }
    return sinks.size() + window.size() + most;
  }
};

struct TokenWeights {
  const float* data = nullptr;  ///< [lists, stride]
  std::size_t lists = 0;
  std::size_t stride = 0;
  WeightColumns columns;

  /// Adds them to the scores of the tokens that they are of.
  void add_to(PositionScores& scores) const;
  /// They are sums that began with the scores: takes these sums for the scores.
  void replace(PositionScores& scores) const;
};

/// Weights that are on the host once `copied` is done.
struct HostWeights {
  Buffer memory;
  TokenWeights weights;
  Ticket copied;
  Ticket added;  ///< they have been added, and may be written over
};

struct LayerWeights {
  /// One for each token that may be rejected by itself, or one for all tokens together; two in turn
  /// where `sums` takes them.
  std::vector<HostWeights> tokens;
  /// The scores with the weights of a prompt's tokens that attend one by one, until the tokens are
  /// accepted.
  std::shared_ptr<PositionScores> sums;
};

}  // namespace terrace
