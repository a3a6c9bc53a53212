// Numbers of queries and outputs from one type to another: see terrace/kernels/cuda/ops.hpp.
#include <cuda_runtime.h>

#include <algorithm>

#include "device/calls.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "device/units.cuh"
#include "terrace/core/bytes.hpp"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned blocks_max = 1024;
constexpr unsigned run_numbers = 8;  // of a thread: 16 bytes of the narrower types

/// f16 with the host's bits: the device's own conversions give other bits of NaN.
struct HostF16 : HalfElements<HostF16> {
  __device__ static float of(std::uint16_t bits) { return f16_to_f32(bits); }
  __device__ static std::uint16_t bits(float value) { return f32_to_f16(value); }
};

__host__ __device__ std::size_t numbers_of_token(const KvShape& shape) {
  return shape.query_heads * shape.head_dim;
}

__host__ __device__ std::size_t runs_of_token(const KvShape& shape) {
  return divide_up(numbers_of_token(shape), run_numbers);
}

/// Reads the first `count` numbers of a run.
template <typename Elements>
__device__ void load_run(const std::byte* at, unsigned count, float* out) {
#pragma unroll
  for (unsigned i = 0; i < run_numbers; i += Elements::per_vector) {
    load_vector<Elements>(at + i * Elements::bytes, count > i ? count - i : 0, out + i);
  }
}

/// Writes the first `count` numbers of a run.
template <typename Elements>
__device__ void store_run(std::byte* at, unsigned count, const float* in) {
#pragma unroll
  for (unsigned i = 0; i < run_numbers; i += Elements::per_vector) {
    store_vector<Elements>(at + i * Elements::bytes, count > i ? count - i : 0, in + i);
  }
}

// The type belongs to a call and is the same for all threads of a block, so the block branches on
// it.
__device__ void load_run(const std::byte* at, Dtype dtype, unsigned count, float* out) {
  switch (dtype) {
    case Dtype::f32:
      return load_run<F32Elements>(at, count, out);
    case Dtype::f16:
      return load_run<HostF16>(at, count, out);
    case Dtype::bf16:
      return load_run<Bf16Elements>(at, count, out);
  }
}

__device__ void store_run(std::byte* at, Dtype dtype, unsigned count, const float* in) {
  switch (dtype) {
    case Dtype::f32:
      return store_run<F32Elements>(at, count, in);
    case Dtype::f16:
      return store_run<HostF16>(at, count, in);
    case Dtype::bf16:
      return store_run<Bf16Elements>(at, count, in);
  }
}

/// blockIdx: runs of a call, in turns; call.
template <unsigned capacity>
__global__ void __launch_bounds__(threads)
    convert_runs(const Calls<ConvertQueries, capacity> __grid_constant__ calls) {
  const ConvertQueries& op = calls.of_block();
  const std::size_t numbers = numbers_of_token(op.shape);
  const std::size_t token_runs = runs_of_token(op.shape);
  for (std::size_t i = grid_thread(); i < op.tokens * token_runs; i += grid_threads()) {
    const std::size_t token = i / token_runs;
    const std::size_t first = i % token_runs * run_numbers;
    const std::size_t left = numbers - first;
    const unsigned count = left < run_numbers ? static_cast<unsigned>(left) : run_numbers;
    float run[run_numbers];
    load_run(op.source + token * op.source_stride + first * size_bytes(op.from), op.from, count,
             run);
    store_run(op.target + token * op.target_stride + first * size_bytes(op.to), op.to, count, run);
  }
}

}  // namespace

Status convert_queries(std::span<const ConvertQueries> batch, const Launch& launch) {
  return launch_calls(
      batch, [&]<unsigned capacity>(const Calls<ConvertQueries, capacity>& calls) -> Status {
        const std::size_t runs = calls.largest(
            [](const ConvertQueries& op) { return op.tokens * runs_of_token(op.shape); });
        if (runs == 0) return {};
        const unsigned most = std::max(1U, blocks_max / calls.count);
        return launch_kernel(launch, {calls.grid(blocks_for(runs, threads, most)), threads},
                             "convert_queries", convert_runs<capacity>, calls);
      });
}

}  // namespace terrace::kernels::cuda
