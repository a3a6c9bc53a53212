// Chelsea (CentroidKV): nothing is dropped, all of the middle is merged into as many entries as may
// stay. Heads whose keys are unlike each other (outlier heads) may keep all their tokens
// (outlier_heads.hpp).
//
// Source: arXiv 2506.11418. The bias ln(degree) is decisive: without it errors are twice as large.
#include "keep_best.hpp"
#include "rows.hpp"
#include "terrace/policies/outlier_heads.hpp"

namespace terrace::policies {
namespace {

/// All entries have the same importance: no entry is excluded from merging.
class Chelsea final : public Importance {
 public:
  explicit Chelsea(std::shared_ptr<const OutlierHeads> outliers) noexcept
      : outliers_(std::move(outliers)) {}

  [[nodiscard]] RetentionTraits traits() const noexcept override { return {}; }

  [[nodiscard]] std::vector<float> rate(const RetainRequest& request,
                                        std::size_t head) const override {
    return std::vector<float>(request.heads[head].size());
  }

  [[nodiscard]] std::size_t keep_of(const KeepRequest& request) const noexcept override {
    return outliers_ == nullptr ? request.mean : outliers_->keep_of(request);
  }

 private:
  std::shared_ptr<const OutlierHeads> outliers_;
};

}  // namespace

MadeRetentionPolicy make_chelsea(const RetentionOptions& options) {
  RetentionOptions merging = options;
  merging.merge.share = 1;
  return keep_best("chelsea", std::make_unique<Chelsea>(options.outlier_heads), merging);
}

}  // namespace terrace::policies
