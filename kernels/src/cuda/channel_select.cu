// Selection by some channels of keys: logits by their products, a candidate a thread. Neighbours
// read neighbouring elements of a channel.
#include <cuda_runtime.h>

#include <cmath>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned each = 2;  // candidates of a thread
constexpr unsigned tile = threads * each;
constexpr unsigned heads = 4;  // query heads of a block

/// The channels that a block reads, in shared memory.
struct ReadChannels {
  unsigned count;
  float4* factors;    ///< [count]: the elements of the query heads, scaled
  float* sums;        ///< [head_dim]: |q| over the group
  unsigned* numbers;  ///< [count]

  __device__ ReadChannels(const ChannelSelect& op, uint4* memory)
      : count(static_cast<unsigned>(op.channels.count)),
        factors(reinterpret_cast<float4*>(memory)),
        sums(reinterpret_cast<float*>(factors + count)),
        numbers(reinterpret_cast<unsigned*>(sums + op.common.shape.head_dim)) {}

  static std::size_t bytes(const ChannelSelect& op) {
    return op.channels.count * (sizeof(float4) + sizeof(unsigned)) +
           op.common.shape.head_dim * sizeof(float);
  }
};

/// Writes the numbers of a KV head's channels. Every thread of the block calls it; a barrier must
/// follow.
__device__ void find_channels(const ChannelSelect& op, unsigned head, const ReadChannels& read) {
  if (op.channels.partial) {
    const auto* const stored = reinterpret_cast<const std::uint32_t*>(op.index.fixed);
    for (unsigned c = threadIdx.x; c < read.count; c += threads) {
      read.numbers[c] = stored[static_cast<std::size_t>(head) * read.count + c];
    }
    return;
  }
  const auto dims = static_cast<unsigned>(op.common.shape.head_dim);
  const auto group = static_cast<unsigned>(op.common.shape.group());
  const float* const queries = op.common.query + static_cast<std::size_t>(head) * group * dims;
  for (unsigned i = threadIdx.x; i < dims; i += threads) {
    float sum = 0;
    for (unsigned q = 0; q < group; ++q) sum += fabsf(queries[q * dims + i]);
    read.sums[i] = sum >= 0 ? sum : -1.0F;  // of NaN
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < dims; i += threads) {
    const float sum = read.sums[i];
    unsigned rank = 0;
    for (unsigned other = 0; other < dims; ++other) {
      const float its = read.sums[other];
      rank += its > sum || (its == sum && other < i) ? 1 : 0;
    }
    if (rank < read.count) read.numbers[rank] = i;
  }
}

/// Writes the factors of `used` query heads, a warp each; a barrier must follow.
__device__ void scale_queries(const float* queries, const KvShape& shape, unsigned used,
                              const ReadChannels& read) {
  const auto dims = static_cast<unsigned>(shape.head_dim);
  const unsigned q = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  if (q >= heads) return;
  const float* const query = queries + static_cast<std::size_t>(q) * dims;
  float whole = 0;
  float part = 0;
  if (q < used) {
    for (unsigned i = lane; i < dims; i += 32) whole += fabsf(query[i]);
    for (unsigned c = lane; c < read.count; c += 32) part += fabsf(query[read.numbers[c]]);
  }
  whole = warp_sum(whole);
  part = warp_sum(part);
  const float share = part > 0 ? part / whole : 1.0F;
  const float wanted = shape.softmax_scale;
  const float divisor = wanted != 0 ? 1 / (wanted * wanted) : static_cast<float>(dims);
  const float scale = whole < INFINITY ? 1.0F / sqrtf(divisor * share) : NAN;
  auto* const factors = reinterpret_cast<float*>(read.factors);
  for (unsigned c = lane; c < read.count; c += 32) {
    factors[c * heads + q] = q < used ? query[read.numbers[c]] * scale : 0.0F;
  }
}

/// blockIdx: tile of candidates, KV head, call and which query heads of the group.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_channel_logits(const Calls<ChannelSelect, capacity> __grid_constant__ calls) {
  const ChannelSelect& op = calls.of_block();
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * tile;
  const std::size_t candidates = op.common.candidates.size();
  if (begin >= candidates) return;
  const KvShape& shape = op.common.shape;
  const auto group = static_cast<unsigned>(shape.group());
  const unsigned head = blockIdx.y;
  const unsigned first_query = calls.part() * heads;
  const unsigned used = group - first_query < heads ? group - first_query : heads;
  const std::size_t row = static_cast<std::size_t>(head) * group + first_query;
  const ReadChannels read(op, dynamic_shared_memory);
  find_channels(op, head, read);
  __syncthreads();
  scale_queries(op.common.query + row * shape.head_dim, shape, used, read);
  __syncthreads();
  const bool partial = op.channels.partial;
  const std::size_t channel_bytes = op.index.chunk_tokens * Elements::bytes;
  const std::size_t plane = head * op.channels.stored(shape) * channel_bytes;
  const std::size_t stride = logit_stride(candidates);
  float* const logits =
      op.common.scratch + (static_cast<std::size_t>(head) * (group + 1) + first_query) * stride;
  for (unsigned i = 0; i < each; ++i) {
    const std::size_t candidate = begin + i * threads + threadIdx.x;
    if (candidate >= candidates) return;
    const std::size_t token = op.common.candidates.begin + candidate - op.index.first_token;
    const std::byte* const keys = op.index.chunks[token / op.index.chunk_tokens] + plane +
                                  token % op.index.chunk_tokens * Elements::bytes;
    float sums[heads] = {};
#pragma unroll 8
    for (unsigned c = 0; c < read.count; ++c) {
      const unsigned place = partial ? c : read.numbers[c];
      const float element = Elements::load(keys + place * channel_bytes);
      const float4 factor = read.factors[c];
      sums[0] += factor.x * element;
      sums[1] += factor.y * element;
      sums[2] += factor.z * element;
      sums[3] += factor.w * element;
    }
#pragma unroll
    for (unsigned q = 0; q < heads; ++q) {
      if (q < used) logits[q * stride + candidate] = sums[q];
    }
  }
}

template <typename Elements, unsigned capacity>
Status launch_logits(const Calls<ChannelSelect, capacity>& calls, std::size_t candidates,
                     const Launch& launch) {
  const ChannelSelect& op = calls.each[0];
  const KvShape& shape = op.common.shape;
  const dim3 grid =
      calls.grid(blocks_for(candidates, tile, 0x7fffffffU), static_cast<unsigned>(shape.kv_heads),
                 static_cast<unsigned>((shape.group() + heads - 1) / heads));
  return launch_kernel(launch, {grid, threads, ReadChannels::bytes(op)}, "channel_select",
                       write_channel_logits<Elements, capacity>, calls);
}

template <unsigned capacity>
Status launch_logits_of(const Calls<ChannelSelect, capacity>& calls, const Launch& launch) {
  const std::size_t candidates =
      calls.largest([](const ChannelSelect& op) { return candidates_to_score(op.common); });
  if (candidates == 0) return {};
  return with_elements(calls.each[0].common.shape.dtype, [&](auto elements) {
    return launch_logits<decltype(elements)>(calls, candidates, launch);
  });
}

}  // namespace

Status channel_select(std::span<const ChannelSelect> batch, const Launch& launch) {
  TERRACE_TRY(
      launch_calls(batch, [&](const auto& calls) { return launch_logits_of(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
