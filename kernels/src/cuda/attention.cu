// Decode attention: see terrace/kernels/cuda/ops.hpp.
//
// A block attends to one piece of `attention_split` entries of one list for up to four query heads:
// logits of all its rows, a softmax over them, the weighted sum of their values. Partial results
// lie piece by piece in the scratch memory, [piece, query head, output | maximum | sum], and
// another kernel merges the pieces of each head in order. Which query heads share a block, and
// where rows lie, changes no sum.
#include <cuda_runtime.h>

#include <cmath>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/dot_rows.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "terrace/kernels/cuda/ops.hpp"

// A block's dynamic shared memory, under the one name that all kernels declare it by.
extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned warps = threads / 32;
constexpr unsigned heads_max = 4;
constexpr unsigned split = attention_split;
// What a block waits for is memory: another one works meanwhile. Some registers are spilled for it.
constexpr unsigned blocks_per_processor = 2;

/// How many pieces a list may have. How many it has the device knows.
__host__ __device__ constexpr unsigned pieces_of(const DecodeAttention& op) {
  const std::size_t entries = op.sinks.size() + op.window.size() +
                              (op.selected == nullptr ? 0 : op.selected_stride) +
                              (op.pseudo.count == nullptr ? 0 : op.pseudo.stride);
  return entries == 0 ? 1 : static_cast<unsigned>((entries + split - 1) / split);
}

/// What a block keeps in shared memory, for `heads` query heads.
template <typename Elements>
struct PieceMemory {
  unsigned padded;  ///< floats of a query
  unsigned slab;    ///< dims that the lanes of a warp cover at once
  unsigned heads;

  __host__ __device__ PieceMemory(unsigned dims, unsigned head_count)
      : padded(padded_dims<Elements>(dims)),
        slab(padded < 32 * Elements::per_vector ? padded : 32 * Elements::per_vector),
        heads(head_count) {}

  [[nodiscard]] __host__ __device__ std::size_t bytes() const {
    return split * sizeof(std::byte*) + sizeof(float) * heads * (padded + split + warps * slab + 2);
  }
  __device__ const std::byte** rows() const {
    return reinterpret_cast<const std::byte**>(dynamic_shared_memory);
  }
  __device__ float* queries() const { return reinterpret_cast<float*>(rows() + split); }
  __device__ float* weights() const { return queries() + heads * padded; }  // [heads, split]
  __device__ float* partials() const { return weights() + heads * split; }  // [warps, heads, slab]
  __device__ float* maxima() const { return partials() + warps * heads * slab; }  // [heads]
  __device__ float* sums() const { return maxima() + heads; }                     // [heads]
};

/// The sections of a list, and how many entries they have.
struct ListSections {
  unsigned sinks;
  unsigned window;
  unsigned selected;
  unsigned pseudo;
  [[nodiscard]] __device__ unsigned total() const { return sinks + window + selected + pseudo; }

  __device__ static ListSections of(const DecodeAttention& op, unsigned list) {
    return {static_cast<unsigned>(op.sinks.size()), static_cast<unsigned>(op.window.size()),
            op.selected == nullptr ? 0 : op.selected_count[list],
            op.pseudo.count == nullptr ? 0 : op.pseudo.count[list]};
  }
};

struct Entry {
  const std::byte* row;
  float bias;
};

/// Returns entry `i` of a list: sinks, window, selected, pseudo-entries, in this order.
__device__ Entry entry_at(const DecodeAttention& op, const ListSections& sections, unsigned list,
                          unsigned head, unsigned i) {
  const auto resident = [&](std::size_t position) {
    return Entry{row_place(op.shape, op.resident, head, static_cast<unsigned>(position)), 0.0F};
  };
  if (i < sections.sinks) return resident(op.sinks.begin + i);
  i -= sections.sinks;
  if (i < sections.window) return resident(op.window.begin + i);
  i -= sections.window;
  if (i < sections.selected) {
    const std::size_t place = list * op.selected_stride + i;
    return {op.selected[place], op.selected_bias == nullptr ? 0.0F : op.selected_bias[place]};
  }
  const std::size_t place = list * op.pseudo.stride + (i - sections.selected);
  return {op.pseudo.rows[place], op.pseudo.bias == nullptr ? 0.0F : op.pseudo.bias[place]};
}

/// Turns a head's logits into weights exp(logit - maximum). One warp a head.
template <typename Elements>
__device__ void weigh(const PieceMemory<Elements>& memory, unsigned count) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned h = threadIdx.x / 32; h < memory.heads; h += warps) {
    float* const weights = memory.weights() + h * split;
    float maximum = -INFINITY;
    for (unsigned i = lane; i < count; i += 32) maximum = fmaxf(maximum, weights[i]);
    maximum = warp_max(maximum);
    // With all logits -inf any finite base gives weights 0.
    const float base = maximum == -INFINITY ? 0.0F : maximum;
    float sum = 0;
    for (unsigned i = lane; i < count; i += 32) {
      const float weight = expf(weights[i] - base);
      weights[i] = weight;
      sum += weight;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      memory.maxima()[h] = maximum;
      memory.sums()[h] = sum;
    }
  }
}

/// Sums weight * value over a warp's rows for the dims from `dim` on that a lane holds, and leaves
/// the warp's sums in shared memory.
template <typename Elements, unsigned heads>
__device__ void add_values(const PieceMemory<Elements>& memory, const LaneSplit& lanes,
                           unsigned dims, unsigned dim, unsigned count) {
  constexpr unsigned width = Elements::per_vector;
  const unsigned warp = threadIdx.x / 32;
  const unsigned mine = dim + lanes.lane * width;
  float sums[heads][width] = {};
  if (mine < dims) {
#pragma unroll 8
    for (unsigned i = warp * lanes.rows + lanes.row; i < count; i += warps * lanes.rows) {
      float values[width];
      load_vector<Elements>(memory.rows()[i] + (dims + mine) * Elements::bytes, dims - mine,
                            values);
#pragma unroll
      for (unsigned h = 0; h < heads; ++h) {
        const float weight = memory.weights()[h * split + i];
#pragma unroll
        for (unsigned v = 0; v < width; ++v) sums[h][v] += weight * values[v];
      }
    }
  }
#pragma unroll
  for (unsigned h = 0; h < heads; ++h) {
#pragma unroll
    for (unsigned v = 0; v < width; ++v) {
      for (unsigned mask = lanes.lanes; mask < 32; mask *= 2) {
        sums[h][v] += __shfl_xor_sync(all_lanes, sums[h][v], static_cast<int>(mask));
      }
      const unsigned at = lanes.lane * width + v;
      if (lanes.row == 0 && at < memory.slab) {
        memory.partials()[(warp * heads + h) * memory.slab + at] = sums[h][v];
      }
    }
  }
}

/// Where the results of a piece go: to the scratch memory, or, of the only piece, to the output.
struct PieceTarget {
  const DecodeAttention& op;
  unsigned piece;
  bool only;

  [[nodiscard]] __device__ float* partial(unsigned query_head) const {
    const std::size_t place = static_cast<std::size_t>(piece) * op.shape.query_heads + query_head;
    return op.scratch + place * (op.shape.head_dim + 2);
  }
  __device__ void write(unsigned query_head, unsigned dim, float value, float sum) const {
    if (only) {
      op.output[query_head * op.shape.head_dim + dim] = sum == 0 ? 0.0F : value / sum;
    } else {
      partial(query_head)[dim] = value;
    }
  }
  __device__ void write_sums(unsigned query_head, float maximum, float sum) const {
    if (only) return;
    partial(query_head)[op.shape.head_dim] = maximum;
    partial(query_head)[op.shape.head_dim + 1] = sum;
  }
};

/// blockIdx: piece, list, call and which of the list's query heads.
template <typename Elements, unsigned heads, unsigned capacity>
__global__ void __launch_bounds__(threads, blocks_per_processor)
    attend_piece(const Calls<DecodeAttention, capacity> __grid_constant__ calls) {
  const DecodeAttention& op = calls.of_block();
  const unsigned pieces = capacity == 1 ? gridDim.x : pieces_of(op);
  if (blockIdx.x >= pieces) return;
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const auto group = static_cast<unsigned>(op.shape.group());
  const PieceMemory<Elements> memory(dims, heads);
  const unsigned list = blockIdx.y;
  const bool per_query_head = op.scope == ListScope::query_head;
  const unsigned kv_head = per_query_head ? list / group : list;
  const unsigned first_head = per_query_head ? list : list * group + calls.part() * heads;
  const unsigned left = per_query_head ? 1 : group - calls.part() * heads;
  const unsigned used = left < heads ? left : heads;
  const ListSections sections = ListSections::of(op, list);
  const unsigned total = sections.total();
  const unsigned begin = blockIdx.x * split;
  const PieceTarget target{op, blockIdx.x, pieces == 1};
  if (begin >= total && !target.only) return;
  const unsigned count = total - begin < split ? total - begin : split;

  for (unsigned i = threadIdx.x; i < count; i += threads) {
    const Entry entry = entry_at(op, sections, list, kv_head, begin + i);
    memory.rows()[i] = entry.row;
    for (unsigned h = 0; h < heads; ++h) memory.weights()[h * split + i] = entry.bias;
  }
  share_queries<Elements>(op.query + static_cast<std::size_t>(first_head) * dims, used, heads, dims,
                          1.0F, memory.queries());
  __syncthreads();
  dot_rows<Elements, heads>(
      memory.queries(), dims, count, [&](unsigned i) { return memory.rows()[i]; },
      [&](unsigned h, unsigned i, float dot) {
        float& logit = memory.weights()[h * split + i];  // holds the bias
        logit = op.scale * dot + logit;
      });
  __syncthreads();
  weigh(memory, count);
  __syncthreads();
  const LaneSplit lanes = LaneSplit::of<Elements>(dims);
  for (unsigned dim = 0; dim < dims; dim += memory.slab) {
    add_values<Elements, heads>(memory, lanes, dims, dim, count);
    __syncthreads();
    const unsigned width = dims - dim < memory.slab ? dims - dim : memory.slab;
    for (unsigned i = threadIdx.x; i < used * width; i += threads) {
      const unsigned h = i / width;
      float sum = 0;
      for (unsigned w = 0; w < warps; ++w) {
        sum += memory.partials()[(w * heads + h) * memory.slab + i % width];
      }
      target.write(first_head + h, dim + i % width, sum, memory.sums()[h]);
    }
    __syncthreads();
  }
  if (threadIdx.x < used) {
    target.write_sums(first_head + threadIdx.x, memory.maxima()[threadIdx.x],
                      memory.sums()[threadIdx.x]);
  }
}

/// Merges the pieces of one query head, in order, into its output. blockIdx: query head; z: call.
template <unsigned capacity>
__global__ void merge_pieces(const Calls<DecodeAttention, capacity> __grid_constant__ calls) {
  const DecodeAttention& op = calls.of_block();
  if (pieces_of(op) == 1) return;  // its output is there
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const unsigned head = blockIdx.x;
  const bool per_query_head = op.scope == ListScope::query_head;
  const unsigned list = per_query_head ? head : head / static_cast<unsigned>(op.shape.group());
  const unsigned pieces = (ListSections::of(op, list).total() + split - 1) / split;
  const auto partial = [&](unsigned piece) { return PieceTarget{op, piece, false}.partial(head); };
  float maximum = -INFINITY;
  for (unsigned p = 0; p < pieces; ++p) maximum = fmaxf(maximum, partial(p)[dims]);
  float sum = 0;
  for (unsigned p = 0; p < pieces; ++p) {
    // A piece without weight (all logits -inf) has nothing to add; its difference may be NaN.
    if (partial(p)[dims + 1] == 0) continue;
    sum += partial(p)[dims + 1] * expf(partial(p)[dims] - maximum);
  }
  for (unsigned i = threadIdx.x; i < dims; i += blockDim.x) {
    float value = 0;
    for (unsigned p = 0; p < pieces; ++p) {
      if (partial(p)[dims + 1] == 0) continue;
      value += partial(p)[i] * expf(partial(p)[dims] - maximum);
    }
    op.output[static_cast<std::size_t>(head) * dims + i] = sum == 0 ? 0.0F : value / sum;
  }
}

template <typename Elements, unsigned heads, unsigned capacity>
Status launch_pieces(const Calls<DecodeAttention, capacity>& calls, unsigned pieces,
                     const Launch& launch) {
  const DecodeAttention& op = calls.each[0];
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const PieceMemory<Elements> memory(dims, heads);
  const std::size_t lists = list_count(op.shape, op.scope);
  const std::size_t list_heads = op.shape.query_heads / lists;
  if constexpr (heads > 1) {
    const bool fewer = list_heads <= heads / 2 || memory.bytes() > shared_bytes_max;
    if (fewer) return launch_pieces<Elements, heads / 2>(calls, pieces, launch);
  }
  const dim3 grid = calls.grid(pieces, static_cast<unsigned>(lists),
                               static_cast<unsigned>((list_heads + heads - 1) / heads));
  return launch_kernel(launch, {grid, threads, memory.bytes()}, "decode_attention",
                       attend_piece<Elements, heads, capacity>, calls);
}

template <unsigned capacity>
Status launch_pieces_of(const Calls<DecodeAttention, capacity>& calls, unsigned pieces,
                        const Launch& launch) {
  switch (calls.each[0].shape.dtype) {
    case Dtype::f32:
      return launch_pieces<F32Elements, heads_max>(calls, pieces, launch);
    case Dtype::f16:
      return launch_pieces<F16Elements, heads_max>(calls, pieces, launch);
    case Dtype::bf16:
      break;
  }
  return launch_pieces<Bf16Elements, heads_max>(calls, pieces, launch);
}

}  // namespace

Status decode_attention(std::span<const DecodeAttention> batch, const Launch& launch) {
  return launch_calls(
      batch, [&]<unsigned capacity>(const Calls<DecodeAttention, capacity>& calls) -> Status {
        const unsigned pieces = calls.largest(pieces_of);
        TERRACE_TRY(launch_pieces_of(calls, pieces, launch));
        if (pieces == 1) return {};
        const dim3 grid = calls.grid(static_cast<unsigned>(calls.each[0].shape.query_heads));
        return launch_kernel(launch, {grid, 128}, "decode_attention", merge_pieces<capacity>,
                             calls);
      });
}

}  // namespace terrace::kernels::cuda
