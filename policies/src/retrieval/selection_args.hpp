// From a policy's requests to the arguments of selecting ops.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

/// The arguments that all selecting ops share.
inline SelectCommon selection_of(const SelectRequest& request,
                                 GroupReduction reduction = GroupReduction::sum_softmax) {
  return {.shape = request.shape,
          .query = request.query,
          .candidates = request.candidates,
          .count = request.count,
          .reduction = reduction,
          .ids = request.out.ids,
          .id_count = request.out.id_count,
          .id_stride = request.out.capacity,
          .scratch = request.scratch,
          .held = request.held};
}

/// Enqueues an op for all requests, one call each: arguments_of(request).
///
/// Limits   one request allocates nothing
template <typename Arguments, typename Request, std::invocable<const Request&> ArgumentsOf>
Result<Ticket> enqueue_select(const Op<Arguments>& op, std::span<const Request> batch, Queue& queue,
                              ArgumentsOf arguments_of) {
  if (batch.size() == 1) {
    const Arguments call = arguments_of(batch.front());
    return op(queue, Phase::select, call);
  }
  const std::unique_ptr<Arguments[]> calls(new (std::nothrow) Arguments[batch.size()]);
  if (calls == nullptr) {
    return fail(Errc::out_of_memory, "no memory for the arguments of {} selections", batch.size());
  }
  for (std::size_t i = 0; i < batch.size(); ++i) calls[i] = arguments_of(batch[i]);
  return op(queue, Phase::select, std::span<const Arguments>(calls.get(), batch.size()));
}

}  // namespace terrace::policies
