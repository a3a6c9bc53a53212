// Batches of copies by the call as CUDA 12.8 and 12.9 declare it: compiled with
// CUDA_ON_HOST_VERSION.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "copy_batch.hpp"
#include "cuda_on_host/control.hpp"

static_assert(CUDART_VERSION < 13000);

namespace terrace::offload {
namespace {

TEST(CopiesOfCuda12, AreOneCallWhereTheDriverTakesIt) {
  cuda_on_host::Device device;
  for (const bool batched : {true, false}) {
    device.set({.batched_copies = batched});
    std::vector<int> source(1000);
    std::iota(source.begin(), source.end(), 0);
    std::vector<int> target(source.size());
    std::vector<CopyExtent> extents;
    for (std::size_t at = 0; at < source.size(); at += 10) {
      extents.push_back({reinterpret_cast<std::byte*>(&target[at]),
                         reinterpret_cast<const std::byte*>(&source[at]), 10 * sizeof(int)});
    }
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    CopyBatch copies(std::size_t{1} << 30);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(copies.enqueue(extents, stream));
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(target, source);
    EXPECT_EQ(device.counts().batch_calls, batched ? 2U : 1U);
    EXPECT_EQ(device.counts().copy_calls, batched ? 0U : 200U);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
}

TEST(CopiesOfCuda12, SayWhatFailed) {
  cuda_on_host::Device device;
  device.fail("cudaMemcpyBatchAsync", {.error = cudaErrorIllegalAddress});
  int values[2]{};
  const CopyExtent extent{reinterpret_cast<std::byte*>(&values[0]),
                          reinterpret_cast<const std::byte*>(&values[1]), sizeof(int)};
  const std::vector<CopyExtent> extents{extent, extent};
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  CopyBatch copies(std::size_t{1} << 30);
  EXPECT_EQ(copies.enqueue(extents, stream).error().code, Errc::device_lost);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace terrace::offload
