// A queue of an embedder's own stream, on backend cuda.
//
//   TERRACE_ASSIGN(auto compute, wrap_queue(runtime->backend(), stream, {.name = "compute"}));
//   project_queries<<<..., stream>>>(query);
//   TERRACE_TRY(sequence->attend(layer, {.query = query, .kv = kv}, output, *compute));
//   project_output<<<..., stream>>>(output);            // after attention, without a wait
//
// The header of the CUDA runtime is not needed: CUstream_st* is what it calls cudaStream_t.
#pragma once

#include <memory>

#include "terrace/core/backend.hpp"
#include "terrace/offload/caller_queue.hpp"

struct CUstream_st;
using cudaStream_t = CUstream_st*;

namespace terrace::offload {

/// Makes a queue whose work is put on a stream of the embedder's, of the backend's device, by the
/// thread that enqueues it and before the call returns. So it runs after the work that the embedder
/// has put there before, and before the work that the embedder puts there next. The backend and the
/// stream must outlive the queue. A null stream is the legacy default stream, as in calls of CUDA:
/// the driver takes no batches of copies there, so that copies of one call go one by one.
///
/// Order    the rule of core/queue.hpp. Ops, copies, record() and wait_for() wait for nothing on
///          the host, but for these, which have to go well before the stream may be told of more:
///          wait_for() work of another queue that comes after a host function waits until the
///          device has been told of that work, and wait_for() work of a host queue until it is
///          done; call() waits until the stream has done all work of this queue, and runs the
///          function
/// Threads  none of its own. One thread at a time enqueues, and puts work on the stream
/// Lifetime the queue's end waits for its own work, not for the embedder's later work, and leaves
///          the stream as it is. While the stream is captured into a graph, no thread may enqueue
///          on the queue, nor wait for its work or poll it: that may put an event on the stream
/// Errors   invalid_argument: not the backend for CUDA itself (no decorator around it);
///          device_lost; out_of_memory. Enqueueing gives not_ready when `wait_timeout` has passed:
///          nothing was enqueued then, and the queue goes on without the piece
[[nodiscard]] Result<std::unique_ptr<Queue>> wrap_queue(Backend& backend, cudaStream_t stream,
                                                        const CallerQueueOptions& options);

}  // namespace terrace::offload
