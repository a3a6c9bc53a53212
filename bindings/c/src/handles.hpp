// The insides of handles. A handle owns its own part, and shares the parts that it needs. Members
// are declared in the order in which they may be destroyed last, so that closing in any order is
// safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "failure.hpp"
#include "terrace.h"
#include "terrace/core/config.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::bindings {

/// A runtime stays as long as a queue of its backend does, which terrace::Runtime alone does not
/// promise: it is marked closed, and goes with the last handle.
struct SharedRuntime {
  std::unique_ptr<Runtime> runtime;
  offload::BackendChoice backend;
  std::atomic<bool> closed{false};
  std::atomic<std::size_t> sequences{0};

  /// Errors: invalid_argument: closed before `who`.
  [[nodiscard]] Status check_open(std::string_view call, std::string_view who) const {
    if (!closed.load(std::memory_order_relaxed)) return {};
    return fail(Errc::invalid_argument, "{}: the runtime was closed before {}", call, who);
  }
};

struct SharedQueue {
  std::shared_ptr<SharedRuntime> runtime;
  std::unique_ptr<Queue> queue;
};

struct SharedSequence {
  SharedSequence(std::shared_ptr<SharedRuntime> of, std::unique_ptr<Sequence> opened)
      : runtime(std::move(of)), sequence(std::move(opened)) {
    runtime->sequences.fetch_add(1, std::memory_order_relaxed);
  }
  SharedSequence(const SharedSequence&) = delete;
  SharedSequence& operator=(const SharedSequence&) = delete;
  ~SharedSequence() { runtime->sequences.fetch_sub(1, std::memory_order_relaxed); }

  std::shared_ptr<SharedRuntime> runtime;
  std::shared_ptr<SharedQueue> compute;  ///< in which it was lost: its end waits for it
  std::unique_ptr<Sequence> sequence;
};

}  // namespace terrace::bindings

struct terrace_config {
  terrace::Config config;
  std::string keys;  ///< as JSON
};

struct terrace_runtime {
  std::shared_ptr<terrace::bindings::SharedRuntime> shared;
  std::string traits;  ///< as JSON
};

struct terrace_queue {
  std::shared_ptr<terrace::bindings::SharedQueue> shared;
};

struct terrace_sequence {
  std::shared_ptr<terrace::bindings::SharedSequence> shared;
  std::string counters;  ///< as JSON
};

struct terrace_step {
  std::shared_ptr<terrace::bindings::SharedRuntime> runtime;
  std::shared_ptr<terrace::bindings::SharedQueue> compute;
  std::vector<std::shared_ptr<terrace::bindings::SharedSequence>> sequences;
  std::unique_ptr<terrace::Step> step;
};
