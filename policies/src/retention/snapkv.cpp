// SnapKV: the tokens that the last queries look at; PyramidKV: the same, with more entries in the
// first layers than in the last.
//
// Sources: arXiv 2404.14469 and 2406.02069. Run at each flush, and not after the prompt alone, it
// is the best of the policies that drop.
#include <algorithm>
#include <cmath>

#include "keep_best.hpp"
#include "rows.hpp"
#include "scores.hpp"

namespace terrace::policies {
namespace {

class SnapKv : public Importance {
 public:
  explicit SnapKv(const RetentionOptions& options)
      : pool_(options.pool.or_else({.width = 7, .kind = PoolKind::average})),
        window_(options.score_window),
        once_(options.rerun == Rerun::once) {}

  [[nodiscard]] RetentionTraits traits() const noexcept override {
    return {.scores = ScoredQueries::last, .score_window = window_, .chooses_once = once_};
  }

  [[nodiscard]] std::vector<float> rate(const RetainRequest& request,
                                        std::size_t head) const override {
    return pool(scores_of(request, head), request.heads[head], pool_);
  }

 private:
  PoolOptions pool_;
  std::size_t window_;
  bool once_;
};

class PyramidKv final : public SnapKv {
 public:
  explicit PyramidKv(const RetentionOptions& options)
      : SnapKv(options), slope_(options.pyramid_slope) {}

  [[nodiscard]] std::size_t keep_of(const KeepRequest& request) const noexcept override {
    const std::size_t layers = request.shape.layers;
    if (layers < 2) return request.mean;
    const auto middle = static_cast<double>(request.mean);
    const double least = middle / slope_;
    const double most = 2 * middle - least;
    const double depth =
        static_cast<double>(index(request.layer)) / static_cast<double>(layers - 1);
    return static_cast<std::size_t>(std::lround(most - depth * (most - least)));
  }

 private:
  double slope_;
};

}  // namespace

std::unique_ptr<Importance> snapkv_importance(const RetentionOptions& options) {
  return std::make_unique<SnapKv>(options);
}

std::unique_ptr<Importance> pyramidkv_importance(const RetentionOptions& options) {
  return std::make_unique<PyramidKv>(options);
}

MadeRetentionPolicy make_snapkv(const RetentionOptions& options) {
  return keep_best("snapkv", snapkv_importance(options), options);
}

MadeRetentionPolicy make_pyramidkv(const RetentionOptions& options) {
  return keep_best("pyramidkv", pyramidkv_importance(options), options);
}

}  // namespace terrace::policies
