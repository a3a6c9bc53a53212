// SmartKV: the tokens that a small network, reading their keys, thinks will be looked at longest.
//
// Source: github.com/enjeyw/smartkv. The network says the base-4 logarithm of a token's lifespan
// when the token comes. Taking its age off the lifespan, which the original does not, is better.
// The original has one list a layer, by the sum of the logarithms over KV heads; there the lifespan
// that ages is that of their mean.
#include <algorithm>
#include <cmath>
#include <functional>

#include "keep_best.hpp"
#include "rows.hpp"
#include "scores.hpp"

namespace terrace::policies {
namespace {

class SmartKv final : public Importance {
 public:
  explicit SmartKv(const RetentionOptions& options)
      : gates_(options.gates),
        pool_(options.pool.or_else({.width = 1})),
        lists_(options.gate_lists),
        ages_(options.ageing) {}

  [[nodiscard]] RetentionTraits traits() const noexcept override {
    return {.needs_pre_rope_keys = true};
  }

  [[nodiscard]] Status rate_keys(const RateRequest& request, Parallel& threads) const override {
    TERRACE_TRY(gates_->check_shape(request.shape));
    gates_->rate(request.layer, request.keys, request.ratings, threads);
    return {};
  }

  [[nodiscard]] std::vector<float> rate(const RetainRequest& request,
                                        std::size_t head) const override {
    std::vector<float> lives = ratings_of(request, head);
    const float heads =
        lists_ == GateLists::sum ? static_cast<float>(request.shape.kv_heads) : 1.0F;
    for (std::size_t position = 0; ages_ && position < lives.size(); ++position) {
      lives[position] =
          std::exp2(2 * lives[position] / heads) - static_cast<float>(request.length - position);
    }
    return pool(lives, request.heads[head], pool_);
  }

 private:
  /// The ratings [length] of a KV head, or their sums over all.
  [[nodiscard]] std::vector<float> ratings_of(const RetainRequest& request,
                                              std::size_t head) const {
    if (lists_ == GateLists::own) return scores_of(request, head);
    std::vector<float> sums = scores_of(request, 0);
    for (std::size_t other = 1; other < request.shape.kv_heads; ++other) {
      std::ranges::transform(sums, scores_of(request, other), sums.begin(), std::plus{});
    }
    return sums;
  }

  std::shared_ptr<const Gates> gates_;
  PoolOptions pool_;
  GateLists lists_;
  bool ages_;
};

}  // namespace

std::unique_ptr<Importance> smartkv_importance(const RetentionOptions& options) {
  return std::make_unique<SmartKv>(options);
}

MadeRetentionPolicy make_smartkv(const RetentionOptions& options) {
  if (options.gates == nullptr) {
    return fail(Errc::invalid_argument,
                "smartkv rates tokens by networks trained for the model: give retention.gates, a "
                "file that tools/train_gates.py wrote");
  }
  return keep_best("smartkv", smartkv_importance(options), options);
}

}  // namespace terrace::policies
