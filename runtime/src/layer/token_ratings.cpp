#include "token_ratings.hpp"

namespace terrace {
namespace {

/// To wake the thread that rates takes as long as to rate some tokens.
constexpr std::size_t rated_together = 64;

}  // namespace

Status TokenRatings::keep(const Raters& raters, LayerId layer, TokenRange tokens,
                          std::span<const float> keys, Queue& compute, PositionScores& scores) {
  auto piece = std::make_shared<Piece>(Piece{.tokens = tokens});
  const auto copy = [piece, keys]() -> Result<std::size_t> {
    piece->keys.assign(keys.begin(), keys.end());
    return 0;
  };
  TERRACE_ASSIGN(copied_, compute.call(Phase::update, copy));
  waiting_.push_back(std::move(piece));
  waiting_tokens_ += tokens.size();
  return waiting_tokens_ < rated_together ? Status{} : rate(raters, layer, scores);
}

Status TokenRatings::rate(const Raters& raters, LayerId layer, PositionScores& scores) {
  if (waiting_.empty()) return {};
  TERRACE_TRY(raters.queue.wait_for(copied_));
  const auto work = [&plan = raters.plan, &threads = raters.threads, &scores, layer,
                     pieces = waiting_]() -> Result<std::size_t> {
    for (const auto& piece : pieces) {
      const std::size_t tokens = piece->tokens.size();
      std::vector<float> ratings(plan.shape().kv_heads * tokens);
      TERRACE_TRY(threads.rate(
          *plan.retention,
          {.shape = plan.shape(), .layer = layer, .keys = piece->keys, .ratings = ratings}));
      if (scores.empty()) scores.start(plan.shape().kv_heads);
      for (std::size_t i = 0; i < ratings.size(); ++i) {
        scores.set(i / tokens, piece->tokens.begin + i % tokens, ratings[i]);
      }
    }
    return 0;
  };
  TERRACE_TRY(raters.queue.call(Phase::cluster, work));
  waiting_.clear();
  waiting_tokens_ = 0;
  copied_ = {};
  return {};
}

}  // namespace terrace
