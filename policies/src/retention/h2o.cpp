// H2O: the tokens that drew most attention from all queries so far.
//
// Source: arXiv 2306.14048. Sums favour early tokens, which more queries saw: `normalise` divides
// by their number.
#include "keep_best.hpp"
#include "rows.hpp"
#include "scores.hpp"

namespace terrace::policies {
namespace {

class H2o final : public Importance {
 public:
  explicit H2o(const RetentionOptions& options)
      : pool_(options.pool.or_else({.width = 1})), normalises_(options.normalise) {}

  [[nodiscard]] RetentionTraits traits() const noexcept override {
    return {.scores = ScoredQueries::all};
  }

  [[nodiscard]] std::vector<float> rate(const RetainRequest& request,
                                        std::size_t head) const override {
    std::vector<float> scores = scores_of(request, head);
    for (std::size_t position = 0; normalises_ && position < scores.size(); ++position) {
      scores[position] /= static_cast<float>(request.length - position);
    }
    return pool(scores, request.heads[head], pool_);
  }

 private:
  PoolOptions pool_;
  bool normalises_;
};

}  // namespace

std::unique_ptr<Importance> h2o_importance(const RetentionOptions& options) {
  return std::make_unique<H2o>(options);
}

MadeRetentionPolicy make_h2o(const RetentionOptions& options) {
  return keep_best("h2o", h2o_importance(options), options);
}

}  // namespace terrace::policies
