// Runs ops for CUDA on a stream of their own, to their end.
//
// Arguments lie in ordinary memory: on the stand-in a device reads it, and in the program for a
// real device `new` gives managed memory. So what an op points to is never on the stack.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::testing {

class DeviceRun {
 public:
  DeviceRun() : scratch_(kernels::cuda::scratch_words), moved_(1) {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  ~DeviceRun() { static_cast<void>(cudaStreamDestroy(stream_)); }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  /// Enqueues op(launch), waits for it, and returns what it returned.
  template <typename Op>
  auto operator()(Op op) {
    const auto result = op(kernels::cuda::Launch{stream_, scratch_.data(), moved_.data()});
    EXPECT_TRUE(result.has_value()) << result.error().message();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_TRUE(std::ranges::all_of(scratch_, [](std::uint32_t word) { return word == 0; }))
        << "scratch words were not set back";
    return result;
  }

  /// Bytes that the last op counted itself.
  [[nodiscard]] std::uint64_t moved() const { return moved_.front(); }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<std::uint32_t> scratch_;
  std::vector<std::uint64_t> moved_;
};

}  // namespace terrace::testing
