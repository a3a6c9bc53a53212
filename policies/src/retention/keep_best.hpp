// The policy that most retention policies are: the most important entries stay, and the rest is
// dropped, or merged into fewer entries.
#pragma once

#include <memory>

#include "importance.hpp"

namespace terrace::policies {

class KeepBest final : public RetentionPolicy {
 public:
  KeepBest(std::string_view name, std::unique_ptr<Importance> importance,
           const MergeOptions& merge);

  [[nodiscard]] const RetentionTraits& traits() const noexcept override { return traits_; }
  [[nodiscard]] std::size_t keep_of(const KeepRequest& request) const noexcept override {
    return importance_->keep_of(request);
  }

 private:
  [[nodiscard]] std::vector<EntryMap> do_retain(const RetainRequest& request) const override;
  [[nodiscard]] Status do_rate(const RateRequest& request, Parallel& threads) const override {
    return importance_->rate_keys(request, threads);
  }

  std::unique_ptr<Importance> importance_;
  MergeOptions merge_;
  RetentionTraits traits_;
};

}  // namespace terrace::policies
