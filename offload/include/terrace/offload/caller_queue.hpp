// A queue of an embedder's own thread, on the host backend.
//
//   TERRACE_ASSIGN(auto compute, make_caller_queue(runtime->backend(), {.name = "compute"}));
//   TERRACE_TRY(sequence->attend(layer, input, output, *compute));
//   // output is there: attention has run on this thread, and on the backend's device threads
//
// An engine whose kernels run on a thread of its own needs no hand-over this way. For an engine
// with a stream of CUDA: cuda/wrap_queue.hpp.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "terrace/core/backend.hpp"

namespace terrace::offload {

struct CallerQueueOptions {
  std::string name = "compute";
  Duration wait_timeout = std::chrono::seconds(30);  ///< for work of other queues, and for room
};

/// Makes a queue each piece of whose work runs on the thread that enqueues it, before the call
/// returns. The backend must outlive the queue.
///
/// Order    the rule of core/queue.hpp. Work that is enqueued is done, so that a ticket never
///          has to be waited for, and nothing is cancelled at the queue's end. wait_for() of
///          another queue's ticket waits on the calling thread
/// Threads  none of its own. Ops split themselves over the backend's device threads. One thread
///          at a time enqueues
/// Errors   invalid_argument: not the host backend itself (no decorator around it). wait_for()
///          gives not_ready when `wait_timeout` has passed: nothing was enqueued then, and the
///          queue goes on without the wait
[[nodiscard]] Result<std::unique_ptr<Queue>> make_caller_queue(Backend& backend,
                                                               const CallerQueueOptions& options);

}  // namespace terrace::offload
