// The only interface for data-parallel work: kernels, clustering and the engine split work into
// numbered parts and do not know which threads run them. Results may never depend on the number of
// threads, so parts are cut by the data (fixed tile sizes), not by `concurrency()`.
#pragma once

#include <cstddef>

#include "terrace/core/function_ref.hpp"

namespace terrace {

/// Runs the parts of a job, on as many threads as it has.
class Parallel {
 public:
  Parallel() = default;
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;
  virtual ~Parallel() = default;

  /// Threads that work at once, the caller's included; at least 1.
  [[nodiscard]] virtual std::size_t concurrency() const noexcept = 0;

  /// Calls part(0) .. part(count - 1), each once, in any order and on any thread; returns when
  /// all are done.
  ///
  /// Threads  safe from several threads at once, which share the workers, as queues of one device
  ///          do; parts must not call for_each on the same object
  /// Errors   none: parts must not throw
  virtual void for_each(std::size_t count, FunctionRef<void(std::size_t)> part) = 0;
};

/// Runs every part on the caller's thread, in order.
class Serial final : public Parallel {
 public:
  [[nodiscard]] std::size_t concurrency() const noexcept override { return 1; }
  void for_each(std::size_t count, FunctionRef<void(std::size_t)> part) override {
    for (std::size_t i = 0; i < count; ++i) part(i);
  }
};

}  // namespace terrace
