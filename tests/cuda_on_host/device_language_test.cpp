// The device language on fibers: places, barriers, warps, shared memory.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "cuda_on_host/control.hpp"
#include "cuda_runtime.h"

extern __shared__ uint4 dynamic_shared_memory[];

namespace cuda_on_host {
namespace {

class DeviceLanguage : public ::testing::Test {
 protected:
  DeviceLanguage() {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  ~DeviceLanguage() override { static_cast<void>(cudaStreamDestroy(stream_)); }

  template <typename... Parameters, typename... Arguments>
  cudaError_t launch_of(dim3 grid, dim3 threads, std::size_t shared, void (*kernel)(Parameters...),
                        Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream_;
    const cudaError_t launched = cudaLaunchKernelEx(&config, kernel, arguments...);
    return launched == cudaSuccess ? cudaStreamSynchronize(stream_) : launched;
  }

  Device device_;
  cudaStream_t stream_ = nullptr;
};

__global__ void note_place(unsigned* places) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  places[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

TEST_F(DeviceLanguage, EveryThreadOfEveryBlockKnowsItsPlace) {
  for (const bool descending : {false, true}) {
    device_.set({.blocks_descending = descending});
    std::vector<unsigned> places(24 * 40, ~0U);
    ASSERT_EQ(launch_of({2, 3, 4}, {5, 4, 2}, 0, note_place, places.data()), cudaSuccess);
    for (unsigned i = 0; i < places.size(); ++i) ASSERT_EQ(places[i], i / 40 * 1000 + i % 40);
  }
}

__global__ void rotate_through_shared(const int* source, int* target) {
  __shared__ int values[128];
  for (unsigned round = 0; round < 5; ++round) {
    values[threadIdx.x] = round == 0 ? source[threadIdx.x] : target[threadIdx.x];
    __syncthreads();
    target[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
}

TEST_F(DeviceLanguage, ABarrierWaitsForTheWholeBlock) {
  std::vector<int> source(128);
  std::iota(source.begin(), source.end(), 0);
  std::vector<int> target(128);
  ASSERT_EQ(launch_of(1, 128, 0, rotate_through_shared, source.data(), target.data()), cudaSuccess);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(target[static_cast<std::size_t>(i)], (i + 5) % 128);
}

__global__ void exchange_lanes(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned sum = lane + 1;
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0U, sum, mask);
  const unsigned odd = __ballot_sync(~0U, lane % 2 == 1);
  const unsigned before = __shfl_up_sync(~0U, lane, 1);
  const unsigned after = __shfl_down_sync(~0U, lane, 2);
  const float third = __shfl_sync(~0U, static_cast<float>(lane), 3);
  // The halves of a warp go separate ways, a different number of times.
  unsigned half = lane;
  if (lane < 16) {
    for (int mask = 8; mask > 0; mask /= 2) half += __shfl_xor_sync(0xffffU, half, mask);
  } else {
    half = __shfl_sync(0xffff0000U, half, 16);
  }
  __syncwarp();
  unsigned* const mine = out + threadIdx.x * 6;
  mine[0] = sum;
  mine[1] = odd;
  mine[2] = before;
  mine[3] = after;
  mine[4] = static_cast<unsigned>(third);
  mine[5] = half;
}

TEST_F(DeviceLanguage, LanesOfAWarpExchangeWithoutTheOthers) {
  std::vector<unsigned> out(64 * 6);
  ASSERT_EQ(launch_of(1, 64, 0, exchange_lanes, out.data()), cudaSuccess);
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned lane = i % 32;
    const std::array<unsigned, 6> expected{
        528, 0xaaaaaaaaU,           lane == 0 ? 0 : lane - 1, lane >= 30 ? lane : lane + 2,
        3,   lane < 16 ? 120U : 16U};
    for (unsigned j = 0; j < 6; ++j) EXPECT_EQ(out[i * 6 + j], expected[j]) << i << " " << j;
  }
}

__global__ void count_in_shared(unsigned* total, bool* fresh) {
  auto* const counts = reinterpret_cast<unsigned*>(dynamic_shared_memory);
  if (threadIdx.x == 0) {
    *fresh = *fresh && counts[0] == ~0U && counts[99] == ~0U;
    counts[99] = 0;
  }
  __syncthreads();
  atomicAdd(&counts[99], 2U);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(total, counts[99]);
}

TEST_F(DeviceLanguage, DynamicSharedMemoryIsFreshInEachBlock) {
  unsigned total = 0;
  bool fresh = true;
  ASSERT_EQ(launch_of(10, 96, 400, count_in_shared, &total, &fresh), cudaSuccess);
  EXPECT_EQ(total, 10U * 96 * 2);
  EXPECT_TRUE(fresh);
}

TEST_F(DeviceLanguage, RefusesALaunchThatNoDeviceTakes) {
  unsigned total = 0;
  bool fresh = true;
  const auto attempt = [&](dim3 grid, dim3 threads, std::size_t shared) {
    return launch_of(grid, threads, shared, count_in_shared, &total, &fresh);
  };
  EXPECT_EQ(attempt(0, 32, 400), cudaErrorInvalidConfiguration);
  EXPECT_EQ(attempt(1, 1025, 400), cudaErrorInvalidConfiguration);
  EXPECT_EQ(attempt(1, 32, (48 << 10) + 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(attempt(dim3(1, 65536), 32, 400), cudaErrorInvalidConfiguration);
  EXPECT_EQ(total, 0U);
}

__global__ void part_ways() {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    static_cast<void>(__shfl_sync(~0U, 1, 0));
  }
}

TEST_F(DeviceLanguage, NamesADeadlock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(static_cast<void>(launch_of(1, 32, 0, part_ways)),
               "deadlock: of 32 threads 0 ended, 16 wait for the block, 16 for lanes");
}

}  // namespace
}  // namespace cuda_on_host
