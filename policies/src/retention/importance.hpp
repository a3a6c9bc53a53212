// How soon an entry stays: the part in which policies that keep the best differ.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "terrace/core/retention.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace::policies {

class Importance {
 public:
  Importance() = default;
  Importance(const Importance&) = delete;
  Importance& operator=(const Importance&) = delete;
  virtual ~Importance() = default;

  [[nodiscard]] virtual RetentionTraits traits() const noexcept = 0;

  /// Rates the candidates of a KV head: the greater, the sooner one stays.
  [[nodiscard]] virtual std::vector<float> rate(const RetainRequest& request,
                                                std::size_t head) const = 0;

  /// As RetentionPolicy::do_rate.
  [[nodiscard]] virtual Status rate_keys(const RateRequest& /*request*/,
                                         Parallel& /*threads*/) const {
    return {};
  }

  /// As RetentionPolicy::keep_of.
  [[nodiscard]] virtual std::size_t keep_of(const KeepRequest& request) const noexcept {
    return request.mean;
  }
};

std::unique_ptr<Importance> h2o_importance(const RetentionOptions& options);
std::unique_ptr<Importance> snapkv_importance(const RetentionOptions& options);
std::unique_ptr<Importance> pyramidkv_importance(const RetentionOptions& options);
std::unique_ptr<Importance> smartkv_importance(const RetentionOptions& options);

/// Makes the importance that a policy's name stands for. Errors: invalid_argument naming those that
/// have one.
[[nodiscard]] Result<std::unique_ptr<Importance>> make_importance(const RetentionOptions& options);

}  // namespace terrace::policies
