// A kernel of the stand-in that stands still until it is let go.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>

#include "terrace/offload/cuda/enqueue.hpp"

namespace terrace::testing {

class GateKernel {
 public:
  GateKernel() = default;
  GateKernel(const GateKernel&) = delete;
  GateKernel& operator=(const GateKernel&) = delete;
  ~GateKernel() { open(); }

  /// Enqueues the kernel.
  Result<Ticket> enqueue(Queue& queue) {
    return offload::enqueue_kernels(queue, Phase::model,
                                    [this](const kernels::cuda::Launch& launch) {
                                      launch_on(static_cast<cudaStream_t>(launch.stream));
                                      return Status{};
                                    });
  }
  /// Puts the kernel on a stream, as an embedder does with its own.
  void launch_on(cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 1;
    config.stream = stream;
    EXPECT_EQ(cudaLaunchKernelEx(&config, wait, &open_), cudaSuccess);
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  static void wait(std::atomic<bool>* open) { open->wait(false); }

  std::atomic<bool> open_{false};
};

}  // namespace terrace::testing
