// Decode attention: see terrace/kernels/cuda/ops.hpp.
//
// A block attends to one piece of `split` entries of one list for up to four query heads:
// logits of all its rows, a softmax over them, the weighted sum of their values. Partial results
// lie piece by piece in the scratch memory, [piece, query head, output | maximum | sum], and the
// block that ends last of a list's pieces merges them in order. Which query heads share a block,
// which block ends last, and where rows lie, changes no sum.
//
// If weights are wanted the logits are kept, and another kernel turns them into weights by the
// maximum and the sum of all pieces.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "device/attention_merge.cuh"
#include "device/attention_piece.cuh"
#include "device/calls.cuh"
#include "device/dot_rows.cuh"
#include "device/elements.cuh"
#include "device/last_block.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "rests.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = attention_threads;
constexpr unsigned heads_max = attention_heads_max;
// Short pieces: even a list of a thousand entries keeps many processors busy.
constexpr unsigned split = attention_split_min;

/// How many pieces a list may have. How many it has the device knows.
__host__ __device__ constexpr unsigned pieces_of(const DecodeAttention& op) {
  const std::size_t entries = op.sinks.size() + op.window.size() +
                              (op.selected == nullptr ? 0 : op.selected_stride) +
                              (op.pseudo.count == nullptr ? 0 : op.pseudo.stride);
  return entries == 0 ? 1 : static_cast<unsigned>((entries + split - 1) / split);
}

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

/// The target of a piece's results: the scratch memory, or, for the only piece, the output.
struct PieceTarget {
  const DecodeAttention& op;
  unsigned piece;
  bool only;

  __device__ void write(unsigned query_head, unsigned dim, float value, float sum) const {
    if (only) {
      op.output[query_head * op.shape.head_dim + dim] = sum == 0 ? 0.0F : value / sum;
    } else {
      partial_of(op, piece, query_head)[dim] = value;
    }
  }
  __device__ void write_sums(unsigned query_head, float maximum, float sum) const {
    if (only && op.weights.sums == nullptr) return;
    float* const sums = partial_of(op, piece, query_head) + op.shape.head_dim;
    sums[0] = maximum;
    sums[1] = sum;
  }
};

/// Keeps the logits of a piece that begins with entry `begin`, for the weights of `used` heads.
template <typename Elements>
__device__ void keep_logits(const DecodeAttention& op, const PieceMemory<Elements>& memory,
                            unsigned first_head, unsigned used, unsigned begin, unsigned count) {
  for (unsigned h = 0; h < used; ++h) {
    float* const kept = op.weights_scratch + (first_head + h) * op.weights.stride + begin;
    for (unsigned i = threadIdx.x; i < count; i += threads) {
      kept[i] = memory.weights()[h * split + i];
    }
  }
}

/// blockIdx: piece, list, call and which of the list's query heads. `ended` has a word for each
/// call, list and part of its heads.
template <typename Elements, unsigned heads, unsigned capacity>
__global__ void __launch_bounds__(threads, attention_blocks_per_processor)
    attend_piece(const Calls<DecodeAttention, capacity> __grid_constant__ calls,
                 std::uint32_t* ended) {
  const DecodeAttention& op = calls.of_block();
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const auto group = static_cast<unsigned>(op.shape.group());
  const PieceMemory<Elements> memory(dims, heads, split);
  const unsigned list = blockIdx.y;
  const ListSections sections = ListSections::of(op, list);
  const unsigned total = sections.total();
  const unsigned pieces = total <= split ? 1 : (total + split - 1) / split;
  if (blockIdx.x >= pieces) return;
  const bool per_query_head = op.scope == ListScope::query_head;
  const unsigned kv_head = per_query_head ? list / group : list;
  const unsigned first_head = per_query_head ? list : list * group + calls.part() * heads;
  const unsigned left = per_query_head ? 1 : group - calls.part() * heads;
  const unsigned used = left < heads ? left : heads;
  const unsigned begin = blockIdx.x * split;
  const PieceTarget target{op, blockIdx.x, pieces == 1};
  const unsigned count = total - begin < split ? total - begin : split;

  bool is_one_whole = true;
  for (unsigned i = threadIdx.x; i < count; i += threads) {
    const Entry entry = entry_at(op, sections, list, kv_head, begin + i);
    memory.rows()[i] = entry.row;
    is_one_whole = is_one_whole && is_whole<Elements>(entry.row, dims);
    for (unsigned h = 0; h < heads; ++h) memory.weights()[h * split + i] = entry.bias;
  }
  share_queries<Elements>(op.query + static_cast<std::size_t>(first_head) * dims, used, heads, dims,
                          1.0F, memory.queries());
  const bool whole = __syncthreads_and(is_one_whole ? 1 : 0) != 0;
  dot_rows<Elements, heads>(
      memory.queries(), dims, count, whole, [&](unsigned i) { return memory.rows()[i]; },
      [&](unsigned h, unsigned i, float dot) {
        float& logit = memory.weights()[h * split + i];  // holds the bias
        logit = op.scale * dot + logit;
      });
  __syncthreads();
  if (op.weights.sums != nullptr) {
    keep_logits(op, memory, first_head, used, begin, count);
    __syncthreads();
  }
  weigh(memory, count);
  __syncthreads();
  sum_values<Elements, heads>(
      memory, {dims, count, used, whole}, [](unsigned, unsigned) { return true; },
      [&](unsigned h, unsigned dim, float value) {
        target.write(first_head + h, dim, value, memory.sums()[h]);
      });
  if (threadIdx.x < used && count > 0) {
    target.write_sums(first_head + threadIdx.x, memory.maxima()[threadIdx.x],
                      memory.sums()[threadIdx.x]);
  }
  if (target.only) return;
  const unsigned list_part = blockIdx.z * gridDim.y + list;
  if (!ends_last(ended + list_part, pieces)) return;
  PieceMerge<Elements>{op, memory, first_head, used, pieces}.merge();
}

/// The maximum and the sum of weights of a query head, over all pieces.
struct HeadSums {
  float maximum;
  float sum;
};

__device__ HeadSums sums_of_pieces(const DecodeAttention& op, unsigned head, unsigned pieces) {
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  HeadSums all{-INFINITY, 0};
  for (unsigned p = 0; p < pieces; ++p) {
    all.maximum = fmaxf(all.maximum, partial_of(op, p, head)[dims]);
  }
  for (unsigned p = 0; p < pieces; ++p) {
    const float* const sums = partial_of(op, p, head) + dims;
    // A piece without weight (all logits -inf) has nothing to add; its difference may be NaN.
    if (sums[1] == 0) continue;
    all.sum += sums[1] * expf(sums[0] - all.maximum);
  }
  return all;
}

/// Returns how many entries a query head attends to.
__device__ unsigned entries_of(const DecodeAttention& op, unsigned head) {
  const bool per_query_head = op.scope == ListScope::query_head;
  const unsigned list = per_query_head ? head : head / static_cast<unsigned>(op.shape.group());
  return ListSections::of(op, list).total();
}

/// Turns kept logits into weights, summed over the query heads of a list of them. blockIdx:
/// entries, list, call.
template <unsigned capacity>
__global__ void weigh_entries(const Calls<DecodeAttention, capacity> __grid_constant__ calls) {
  __shared__ HeadSums shared[32];
  const DecodeAttention& op = calls.of_block();
  const auto lists = static_cast<unsigned>(list_count(op.shape, op.weights.scope));
  if (op.weights.sums == nullptr || blockIdx.y >= lists) return;
  const unsigned list_heads = static_cast<unsigned>(op.shape.query_heads) / lists;
  const unsigned first = blockIdx.y * list_heads;
  const unsigned entries = entries_of(op, first);
  const unsigned entry = blockIdx.x * threads + threadIdx.x;
  if (blockIdx.x * threads >= entries) return;
  float weight = 0;
  for (unsigned done = 0; done < list_heads; done += 32) {
    const unsigned count = list_heads - done < 32 ? list_heads - done : 32;
    if (threadIdx.x < count) {
      shared[threadIdx.x] =
          sums_of_pieces(op, first + done + threadIdx.x, (entries + split - 1) / split);
    }
    __syncthreads();
    for (unsigned h = 0; entry < entries && h < count; ++h) {
      if (shared[h].sum == 0) continue;
      const float logit = op.weights_scratch[(first + done + h) * op.weights.stride + entry];
      weight += expf(logit - shared[h].maximum) / shared[h].sum;
    }
    __syncthreads();
  }
  if (entry < entries) op.weights.sums[blockIdx.y * op.weights.stride + entry] = weight;
}

template <typename Elements, unsigned heads, unsigned capacity>
Status launch_pieces(const Calls<DecodeAttention, capacity>& calls, unsigned pieces,
                     const Launch& launch) {
  const DecodeAttention& op = calls.each[0];
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const PieceMemory<Elements> memory(dims, heads, split);
  const std::size_t lists = list_count(op.shape, op.scope);
  const std::size_t list_heads = op.shape.query_heads / lists;
  if constexpr (heads > 1) {
    const bool fewer = list_heads <= heads / 2 || memory.bytes() > shared_bytes_max;
    if (fewer) return launch_pieces<Elements, heads / 2>(calls, pieces, launch);
  }
  const dim3 grid = calls.grid(pieces, static_cast<unsigned>(lists),
                               static_cast<unsigned>((list_heads + heads - 1) / heads));
  return launch_kernel(launch, {grid, threads, memory.bytes()}, "decode_attention",
                       attend_piece<Elements, heads, capacity>, calls, launch.scratch);
}

template <unsigned capacity>
Status launch_pieces_of(const Calls<DecodeAttention, capacity>& calls, unsigned pieces,
                        const Launch& launch) {
  return with_elements(calls.each[0].shape.dtype, [&](auto elements) {
    return launch_pieces<decltype(elements), heads_max>(calls, pieces, launch);
  });
}

/// Launches nothing where no call has weights.
template <unsigned capacity>
Status launch_weights(const Calls<DecodeAttention, capacity>& calls, unsigned pieces,
                      const Launch& launch) {
  const auto lists = static_cast<unsigned>(calls.largest([](const DecodeAttention& call) {
    return call.weights.sums == nullptr ? 0 : list_count(call.shape, call.weights.scope);
  }));
  if (lists == 0) return {};
  const dim3 grid =
      calls.grid(blocks_for(std::size_t{pieces} * split, threads, 0x7fffffffU), lists);
  return launch_kernel(launch, {grid, threads}, "decode_attention", weigh_entries<capacity>, calls);
}

}  // namespace

Status decode_attention(std::span<const DecodeAttention> batch, const Launch& launch) {
  TERRACE_TRY(write_rests(batch, launch));
  while (!batch.empty()) {
    // Each list and part of its query heads takes a word.
    const std::size_t most = scratch_words / batch.front().shape.query_heads;
    if (most == 0) return terrace::cuda::check(cudaErrorInvalidConfiguration, "decode_attention");
    const auto some = batch.first(std::min(batch.size(), most));
    TERRACE_TRY(launch_calls(
        some, with_rests_written,
        [&]<unsigned capacity>(const Calls<DecodeAttention, capacity>& calls) -> Status {
          const unsigned pieces = calls.largest(pieces_of);
          TERRACE_TRY(launch_pieces_of(calls, pieces, launch));
          return launch_weights(calls, pieces, launch);
        }));
    batch = batch.subspan(some.size());
  }
  return {};
}

}  // namespace terrace::kernels::cuda
