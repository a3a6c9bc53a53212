// An entry of a backend's table of kernels: enqueues one call of a kernel, or a batch of calls.
//
//   ops.pq_select(queue, Phase::select, {common, pq, index});          // one call
//   ops.pq_select(queue, Phase::select, calls);                        // all of them, one ticket
//
// A batch is one piece of work: one ticket, one failure, and the bytes of all its calls. The calls
// run in any order, or side by side: no call reads memory that another call writes, and calls share
// no scratch memory. Each call gives the same bits as in a batch of its own. The calls are of one
// model: they have equal shapes, equal kinds of lists (scope) and equal parameters of indexes
// (codes, pages, clusters). Everything else may differ: tokens, candidates, windows, counts,
// strides.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "terrace/core/queue.hpp"

namespace terrace {

/// Threads  as Queue: one thread at a time enqueues on a queue
/// Limits   a batch of one allocates nothing
/// Errors   invalid_argument: arguments that validate() refuses (terrace/core/op_arguments.hpp); of
///          a batch the error names the call. Then nothing is enqueued. out_of_memory: no room for
///          a copy of the arguments
/// Tests    tests/contract/ops_contract_test.cpp
template <typename Arguments>
class Op {
 public:
  /// How a backend enqueues a batch, which is not empty.
  using Enqueue = Result<Ticket> (*)(Queue&, Phase, std::span<const Arguments>);

  /// Unsupported.
  constexpr Op() noexcept = default;
  constexpr Op(Enqueue enqueue) noexcept  // NOLINT(google-explicit-constructor): rows of a table
      : enqueue_(enqueue) {}

  /// Enqueues one call. The arguments are copied.
  Result<Ticket> operator()(Queue& queue, Phase phase, const Arguments& arguments) const {
    return enqueue_(queue, phase, {&arguments, 1});
  }

  /// Enqueues a batch of calls. The arguments are copied. For no calls nothing is enqueued, and the
  /// ticket is that of record().
  template <typename Batch>
    requires std::convertible_to<const Batch&, std::span<const Arguments>>
  Result<Ticket> operator()(Queue& queue, Phase phase, const Batch& batch) const {
    const std::span<const Arguments> calls = batch;
    return calls.empty() ? queue.record() : enqueue_(queue, phase, calls);
  }

  friend constexpr bool operator==(const Op& op, std::nullptr_t) noexcept {
    return op.enqueue_ == nullptr;
  }

 private:
  Enqueue enqueue_ = nullptr;
};

}  // namespace terrace
