// The kernels for CUDA, on a stream of their own.
//
// Arguments lie in ordinary memory: on the stand-in a device reads it, and in the program for a
// real device `new` gives memory registered with it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/kernel_run.hpp"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace::testing {
namespace {

namespace cuda = kernels::cuda;

class DeviceRun {
 public:
  DeviceRun() : scratch_(cuda::scratch_words), moved_(1) {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  ~DeviceRun() { static_cast<void>(cudaStreamDestroy(stream_)); }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  /// Enqueues op(launch), waits for it, and returns what it returned.
  template <typename Op>
  auto operator()(Op op) {
    const auto result = op(cuda::Launch{stream_, scratch_.data(), moved_.data()});
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

}  // namespace

std::size_t odd_offset(Dtype dtype) { return size_bytes(dtype); }
bool takes_shape(std::size_t number) { return takes_shape_with(number, 10'000); }

std::size_t run(std::span<const StoreRows> batch) {
  return DeviceRun()([&](const auto& launch) { return cuda::store_rows(batch, launch); }).value();
}
std::size_t run(std::span<const FetchRows> batch) {
  DeviceRun device;
  device([&](const auto& launch) { return cuda::fetch_rows(batch, launch); });
  return device.moved();
}
std::size_t run(std::span<const CacheRows> batch) {
  return DeviceRun()([&](const auto& launch) { return cuda::cache_rows(batch, launch); }).value();
}
void run(std::span<const PqSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::pq_select(batch, launch); });
}
void run(std::span<const ExactSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::exact_select(batch, launch); });
}
void run(std::span<const ChannelSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::channel_select(batch, launch); });
}
void run(std::span<const MapQueries> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::map_queries(batch, launch); });
}
void run(std::span<const ConvertQueries> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::convert_queries(batch, launch); });
}
void run(std::span<const PageSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::page_select(batch, launch); });
}
void run(std::span<const ClusterSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::cluster_select(batch, launch); });
}
void run(std::span<const RefineSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::refine_select(batch, launch); });
}
void run(std::span<const SignSelect> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::sign_select(batch, launch); });
}
void run(std::span<const ResolveRows> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::resolve_rows(batch, launch); });
}
void run(std::span<const DecodeAttention> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::decode_attention(batch, launch); });
}
void run(std::span<const TileAttention> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::tile_attention(batch, launch); });
}
void run(std::span<const TileWeights> batch) {
  DeviceRun()([&](const auto& launch) { return cuda::tile_weights(batch, launch); });
}

}  // namespace terrace::testing
