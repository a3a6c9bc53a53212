// SmartKV: the tokens that a small network, reading their keys, thinks will be looked at longest.
//
// Source: github.com/enjeyw/smartkv. The network says the base-4 logarithm of a token's lifespan
// when the token comes. Taking its age off the lifespan, which the original does not, is better.
#include <cmath>

#include "keep_best.hpp"
#include "rows.hpp"
#include "scores.hpp"

namespace terrace::policies {
namespace {

class SmartKv final : public Importance {
 public:
  explicit SmartKv(const RetentionOptions& options)
      : pool_(options.pool.or_else({.width = 1})), ages_(options.ageing) {}

  [[nodiscard]] RetentionTraits traits() const noexcept override {
    return {.needs_pre_rope_keys = true};
  }

  [[nodiscard]] std::vector<float> rate(const RetainRequest& request,
                                        std::size_t head) const override {
    std::vector<float> lives = scores_of(request, head);
    for (std::size_t position = 0; ages_ && position < lives.size(); ++position) {
      lives[position] =
          std::exp2(2 * lives[position]) - static_cast<float>(request.length - position);
    }
    return pool(lives, request.heads[head], pool_);
  }

 private:
  PoolOptions pool_;
  bool ages_;
};

}  // namespace

std::unique_ptr<Importance> smartkv_importance(const RetentionOptions& options) {
  return std::make_unique<SmartKv>(options);
}

MadeRetentionPolicy make_smartkv(const RetentionOptions& options) {
  return keep_best("smartkv", smartkv_importance(options), options);
}

}  // namespace terrace::policies
