// Rows of activations on their way between matrix products: see model_kernels.hpp.
#include <cuda_runtime.h>

#include <cmath>

#include "device/choice.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "model_kernels.hpp"

namespace terrace::engine::cuda {
namespace {

using kernels::cuda::launch_kernel;
using kernels::cuda::reduce_block;
using kernels::cuda::Sum;

constexpr unsigned threads = 256;
constexpr unsigned blocks_max = 4096;

__global__ void __launch_bounds__(threads) embed_rows(Embed op) {
  const std::size_t row = blockIdx.x;
  const float* const source = op.embedding + static_cast<std::size_t>(op.tokens[row]) * op.size;
  for (std::size_t i = threadIdx.x; i < op.size; i += threads) {
    op.hidden[row * op.size + i] = source[i];
  }
  for (std::size_t i = threadIdx.x; row == 0 && i < op.flag_count; i += threads) op.flags[i] = 0;
}

/// One row a block.
__global__ void __launch_bounds__(threads) normalise_rows(Normalise op) {
  __shared__ float shared[threads / 32];
  const float* const source = op.source + blockIdx.x * op.size;
  float* const target = op.target + blockIdx.x * op.size;
  float squares = 0;
  for (std::size_t i = threadIdx.x; i < op.size; i += threads) squares += source[i] * source[i];
  squares = reduce_block(squares, Sum(), shared);
  const double mean = static_cast<double>(squares) / static_cast<double>(op.size);
  const auto scale = static_cast<float>(1.0 / sqrt(mean + op.epsilon));
  for (std::size_t i = threadIdx.x; i < op.size; i += threads) {
    target[i] = source[i] * scale * op.weight[i];
  }
}

/// blockIdx: head, row.
__global__ void __launch_bounds__(threads) normalise_head(NormaliseHeads op) {
  __shared__ float shared[threads / 32];
  const std::size_t dims = op.shape.head_dim;
  const std::size_t heads = op.shape.query_heads + 2 * op.shape.kv_heads;
  float* const head = op.qkv + (blockIdx.y * heads + blockIdx.x) * dims;
  const float* const weight = blockIdx.x < op.shape.query_heads ? op.query_weight : op.key_weight;
  float squares = 0;
  for (std::size_t i = threadIdx.x; i < dims; i += threads) squares += head[i] * head[i];
  squares = reduce_block(squares, Sum(), shared);
  const double mean = static_cast<double>(squares) / static_cast<double>(dims);
  const auto scale = static_cast<float>(1.0 / sqrt(mean + op.epsilon));
  for (std::size_t i = threadIdx.x; i < dims; i += threads) head[i] *= scale * weight[i];
}

/// The difference of an infinity and itself is no number.
__device__ bool is_finite(float number) { return number - number == 0; }

/// Two elements of a head that rotate together, or that stay.
struct Pair {
  unsigned first;
  unsigned second;
  bool rotates;
};

__device__ Pair pair_of(const RotateAndPack& op, unsigned number) {
  const auto rotated = static_cast<unsigned>(op.rotated == 0 ? op.shape.head_dim : op.rotated);
  if (number >= rotated / 2) return {2 * number, 2 * number + 1, false};
  if (op.neighbours) return {2 * number, 2 * number + 1, true};
  return {number, rotated / 2 + number, true};
}

/// One row a block; a thread takes pairs of elements.
template <typename Elements>
__global__ void __launch_bounds__(threads) rotate_rows(RotateAndPack op) {
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const unsigned half = dims / 2;
  const auto queries = static_cast<unsigned>(op.shape.query_heads);
  const auto keys = static_cast<unsigned>(op.shape.kv_heads);
  const std::size_t row = blockIdx.x;
  const float* const source = op.qkv + row * (queries + 2 * keys) * dims;
  const auto position = static_cast<double>(op.rows.first_position + row);
  for (unsigned i = threadIdx.x; i < (queries + 2 * keys) * half; i += threads) {
    const unsigned head = i / half;
    const Pair pair = pair_of(op, i % half);
    float a = source[head * dims + pair.first];
    float b = source[head * dims + pair.second];
    if (head < queries + keys && pair.rotates) {
      // In double, as on the host: an f32 angle is 2e-3 off at position 32,768.
      const double angle = position * op.frequencies[i % half];
      const auto cosine = static_cast<float>(cos(angle) * op.attention_factor);
      const auto sine = static_cast<float>(sin(angle) * op.attention_factor);
      const float turned = a * cosine - b * sine;
      b = b * cosine + a * sine;
      a = turned;
    }
    if (head < queries) {
      float* const target = op.query + (row * queries + head) * dims;
      target[pair.first] = a;
      target[pair.second] = b;
      continue;
    }
    const bool is_value = head >= queries + keys;
    const unsigned kv_head = head - queries - (is_value ? keys : 0);
    std::byte* const target =
        op.kv + ((kv_head * op.capacity + op.first + row) * 2 + (is_value ? 1 : 0)) * dims *
                    Elements::bytes;
    std::byte* const first = target + pair.first * Elements::bytes;
    std::byte* const second = target + pair.second * Elements::bytes;
    Elements::store(first, a);
    Elements::store(second, b);
    const bool finite = is_finite(Elements::load(first)) && is_finite(Elements::load(second));
    if (!finite && op.unfit != nullptr) atomicExch(op.unfit, 1U);
  }
}

__global__ void __launch_bounds__(threads) add_bias_rows(AddBias op) {
  const std::size_t count = op.rows * op.size;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * threads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += step) {
    op.target[i] += op.bias[i % op.size];
  }
}

__global__ void __launch_bounds__(threads) gate_rows(Swiglu op) {
  const std::size_t count = op.rows * op.size;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * threads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += step) {
    const float* const gate = op.gate_up + i / op.size * 2 * op.size + i % op.size;
    op.target[i] = gate[0] / (1.0F + expf(-gate[0])) * gate[op.size];
  }
}

template <typename Elements>
Status launch_rotation(const RotateAndPack& op, const Launch& launch) {
  return launch_kernel(launch, {static_cast<unsigned>(op.rows.count), threads}, "rotate_and_pack",
                       rotate_rows<Elements>, op);
}

}  // namespace

Status embed(const Embed& op, const Launch& launch) {
  return launch_kernel(launch, {static_cast<unsigned>(op.rows), threads}, "embed", embed_rows, op);
}

Status normalise(const Normalise& op, const Launch& launch) {
  return launch_kernel(launch, {static_cast<unsigned>(op.rows), threads}, "normalise",
                       normalise_rows, op);
}

Status normalise_heads(const NormaliseHeads& op, const Launch& launch) {
  const dim3 blocks(static_cast<unsigned>(op.shape.query_heads + op.shape.kv_heads),
                    static_cast<unsigned>(op.rows));
  return launch_kernel(launch, {blocks, threads}, "normalise_heads", normalise_head, op);
}

Status rotate_and_pack(const RotateAndPack& op, const Launch& launch) {
  switch (op.shape.dtype) {
    case Dtype::f32:
      return launch_rotation<kernels::cuda::F32Elements>(op, launch);
    case Dtype::f16:
      return launch_rotation<kernels::cuda::F16Elements>(op, launch);
    case Dtype::bf16:
      break;
  }
  return launch_rotation<kernels::cuda::Bf16Elements>(op, launch);
}

Status add_bias(const AddBias& op, const Launch& launch) {
  const unsigned blocks = kernels::cuda::blocks_for(op.rows * op.size, threads, blocks_max);
  return launch_kernel(launch, {blocks, threads}, "add_bias", add_bias_rows, op);
}

Status swiglu(const Swiglu& op, const Launch& launch) {
  const unsigned blocks = kernels::cuda::blocks_for(op.rows * op.size, threads, blocks_max);
  return launch_kernel(launch, {blocks, threads}, "swiglu", gate_rows, op);
}

}  // namespace terrace::engine::cuda
