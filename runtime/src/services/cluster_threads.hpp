// Threads that the sequences of a runtime share to cluster, and to rate tokens: one sequence at a
// time has them, others wait their turn.
#pragma once

#include <memory>
#include <mutex>

#include "terrace/core/retention.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/offload/parallel.hpp"

namespace terrace {

/// Threads  safe from any thread
class ClusterThreads {
 public:
  explicit ClusterThreads(std::unique_ptr<Parallel> threads) noexcept
      : threads_(std::move(threads)) {}

  /// Errors: those of RetrievalPolicy::build.
  Result<BuildReport> build(const RetrievalPolicy& policy, const BuildRequest& request) {
    const std::lock_guard lock(mutex_);
    return policy.build(request, *threads_);
  }

  /// Errors: those of RetentionPolicy::rate.
  Status rate(const RetentionPolicy& policy, const RateRequest& request) {
    const std::lock_guard lock(mutex_);
    return policy.rate(request, *threads_);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Parallel> threads_;
};

}  // namespace terrace
