// Ratings that a retention policy gives tokens as they come, from their keys before RoPE. Keys are
// copied after the work that produces them, and rated on the host while the device computes.
#pragma once

#include <memory>
#include <vector>

#include "plan/runtime_plan.hpp"
#include "position_scores.hpp"
#include "services/cluster_threads.hpp"
#include "terrace/core/ids.hpp"

namespace terrace {

/// By which ratings are made.
struct Raters {
  const RuntimePlan& plan;
  Queue& queue;  ///< on which scores are written
  ClusterThreads& threads;
};

/// Threads  one at a time
class TokenRatings {
 public:
  /// Keeps keys [tokens, kv_heads, head_dim] of `tokens`, which lie in host memory once `compute`
  /// has come here. Many tokens are rated at once, few when more are there, or rate() is called.
  /// Errors: those of queues.
  Status keep(const Raters& raters, LayerId layer, TokenRange tokens, std::span<const float> keys,
              Queue& compute, PositionScores& scores);
  /// Enqueues the rating of all that was kept, on the raters' queue. Errors:
  /// those of queues.
  Status rate(const Raters& raters, LayerId layer, PositionScores& scores);

 private:
  struct Piece {
    TokenRange tokens;
    std::vector<float> keys;
  };
  using Pieces = std::vector<std::shared_ptr<Piece>>;

  Pieces waiting_;
  std::size_t waiting_tokens_ = 0;
  Ticket copied_;
};

}  // namespace terrace
