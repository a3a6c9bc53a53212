// Kernels of one's own on a queue of backend cuda.
//
//   TERRACE_TRY(enqueue_kernels(queue, Phase::model, [op](const kernels::cuda::Launch& launch) {
//     return multiply(op, launch);          // puts it on launch.stream, and returns
//   }));
#pragma once

#include <type_traits>
#include <utility>

#include "terrace/core/queue.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::offload {

/// How a task of Queue::launch() that is being run gets at its stream; null anywhere else, and on
/// queues of other backends.
[[nodiscard]] const kernels::cuda::Launch* current_cuda_launch() noexcept;

/// Enqueues kernels(launch), which returns a Status, or the bytes that cross the link.
template <typename Kernels>
Result<Ticket> enqueue_kernels(Queue& queue, Phase phase, Kernels kernels) {
  return queue.launch(phase, [kernels = std::move(kernels)]() -> Result<std::size_t> {
    const kernels::cuda::Launch* const launch = current_cuda_launch();
    if (launch == nullptr) {
      return fail(Errc::invalid_argument, "a kernel of backend cuda on a queue of another");
    }
    if constexpr (std::is_same_v<decltype(kernels(*launch)), Status>) {
      return kernels(*launch).map([] { return std::size_t{0}; });
    } else {
      return kernels(*launch);
    }
  });
}

}  // namespace terrace::offload
