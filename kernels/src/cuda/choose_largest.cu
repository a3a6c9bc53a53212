// From logits to the positions chosen: a softmax of each query head, a weight for each candidate of
// a KV head, and the largest weights, found digit by digit without sorting.
#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>

#include "device/block_scan.cuh"
#include "device/launch_kernel.cuh"
#include "selection.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned softmax_threads = 256;
constexpr unsigned choose_threads = 512;
constexpr unsigned digit_bits = 11;
constexpr unsigned digits = 1U << digit_bits;
constexpr unsigned keys_at_once = 8;  // of a thread, side by side

__device__ float* logits_of(const SelectCommon& common, unsigned head, unsigned row) {
  const std::size_t rows = common.shape.group() + 1;
  return common.scratch + (head * rows + row) * logit_stride(common);
}

/// NaN counts as -inf, +inf as the largest float.
__device__ float limit(float logit) {
  if (logit != logit) return -INFINITY;
  return fminf(logit, FLT_MAX);
}

/// Combines a value of every thread by sum, or by maximum.
__device__ float reduce_block(float value, bool by_maximum, float* shared) {
  const auto combine = [by_maximum](float a, float b) { return by_maximum ? fmaxf(a, b) : a + b; };
  value = by_maximum ? warp_max(value) : warp_sum(value);
  __syncthreads();  // what was shared before has been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float result = shared[0];
  for (unsigned i = 1; i < blockDim.x / 32; ++i) result = combine(result, shared[i]);
  return result;
}

/// Replaces logits by their softmax over the candidates; all -inf gives zeros. One query head a
/// block.
__global__ void normalize_logits(SelectCommon common) {
  __shared__ float shared[softmax_threads / 32];
  const auto group = static_cast<unsigned>(common.shape.group());
  const auto count = static_cast<unsigned>(common.candidates.size());
  float* const row = logits_of(common, blockIdx.x / group, blockIdx.x % group);
  float maximum = -INFINITY;
  for (unsigned i = threadIdx.x; i < count; i += softmax_threads) {
    maximum = fmaxf(maximum, limit(row[i]));
  }
  maximum = reduce_block(maximum, true, shared);
  const float base = maximum == -INFINITY ? 0.0F : maximum;
  float sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += softmax_threads) {
    row[i] = expf(limit(row[i]) - base);
    sum += row[i];
  }
  sum = reduce_block(sum, false, shared);
  const float factor = sum > 0 ? 1.0F / sum : 0.0F;
  for (unsigned i = threadIdx.x; i < count; i += softmax_threads) row[i] *= factor;
}

/// Returns an integer in the order of the floats, NaN lowest and -0 as +0.
__device__ std::uint32_t key_of(float weight) {
  if (weight != weight) return 0;
  const std::uint32_t bits = __float_as_uint(weight + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The choice of one KV head.
struct Choice {
  const SelectCommon& common;
  unsigned head;
  unsigned candidates;
  unsigned wanted;
  std::uint32_t* keys;  // [candidates], in place of the weights

  /// The weight of a candidate. Of one query head its logit is ranked itself: softmax keeps order.
  [[nodiscard]] __device__ float weight(unsigned i) const {
    const auto group = static_cast<unsigned>(common.shape.group());
    if (group == 1) return logits_of(common, head, 0)[i];
    float weight = 0;
    for (unsigned q = 0; q < group; ++q) {
      const float own = logits_of(common, head, q)[i];
      switch (common.reduction) {
        case GroupReduction::sum_softmax:
          weight += own;
          break;
        case GroupReduction::max_softmax:
          weight = fmaxf(weight, own);
          break;
        case GroupReduction::sum_logits:
          weight += limit(own);
          break;
      }
    }
    return weight;
  }
};

/// Keys above `key` are chosen, and the first `ties` that equal it.
struct Threshold {
  std::uint32_t key;
  unsigned ties;
};

struct DigitMemory {
  unsigned counts[digits];
  BlockScan<choose_threads>::Shared scan;
  std::uint32_t digit;
  unsigned above;
};

/// Finds the digit of the key that is the `wanted`-th largest among those counted: it, and how many
/// keys have a higher one, are left in `memory`.
__device__ void find_digit(DigitMemory& memory, unsigned wanted) {
  constexpr unsigned per_thread = digits / choose_threads;
  // Threads in descending order of their digits, so that a sum over threads before is of the
  // higher.
  const unsigned top = digits - 1 - threadIdx.x * per_thread;
  unsigned own = 0;
  for (unsigned i = 0; i < per_thread; ++i) own += memory.counts[top - i];
  unsigned total = 0;
  unsigned above = BlockScan<choose_threads>(memory.scan).exclusive_sum(own, total);
  if (above < wanted && wanted <= above + own) {
    unsigned digit = top;
    while (above + memory.counts[digit] < wanted) above += memory.counts[digit--];
    memory.digit = digit;
    memory.above = above;
  }
  __syncthreads();
}

/// Finds the `wanted`-th largest key, 0 < wanted < candidates, from its highest digit on.
__device__ Threshold find_threshold(const Choice& choice, DigitMemory& memory) {
  std::uint32_t prefix = 0;  // the digits of the key sought that are known
  unsigned wanted = choice.wanted;
  unsigned shift = 32;
  while (shift > 0) {
    const unsigned bits = shift < digit_bits ? shift : digit_bits;
    shift -= bits;
    for (unsigned i = threadIdx.x; i < digits; i += choose_threads) memory.counts[i] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < choice.candidates; i += choose_threads) {
      const std::uint32_t key = choice.keys[i];
      const bool counts = shift + bits == 32 || key >> (shift + bits) == prefix;
      if (counts) atomicAdd(&memory.counts[key >> shift & ((1U << bits) - 1)], 1U);
    }
    __syncthreads();
    find_digit(memory, wanted);
    wanted -= memory.above;
    prefix = prefix << bits | memory.digit;
    __syncthreads();
  }
  return {prefix, wanted};
}

/// Writes the positions chosen, ascending.
__device__ void write_ids(const Choice& choice, Threshold threshold, DigitMemory& memory) {
  constexpr unsigned tile = choose_threads * keys_at_once;
  BlockScan<choose_threads> scan(memory.scan);
  std::uint32_t* const ids = choice.common.ids + choice.head * choice.common.id_stride;
  const auto first_position = static_cast<std::uint32_t>(choice.common.candidates.begin);
  unsigned above = 0;  // chosen for their key, and ties, in the tiles before
  unsigned ties = 0;
  for (unsigned begin = 0; begin < choice.candidates; begin += tile) {
    const unsigned first = begin + threadIdx.x * keys_at_once;
    unsigned own = 0;  // keys above in the low half, ties in the high half
    for (unsigned i = first; i < first + keys_at_once && i < choice.candidates; ++i) {
      if (choice.keys[i] > threshold.key) own += 1;
      if (choice.keys[i] == threshold.key) own += 1U << 16;
    }
    unsigned total = 0;
    const unsigned before = scan.exclusive_sum(own, total);
    unsigned my_above = above + (before & 0xffffU);
    unsigned my_ties = ties + (before >> 16);
    for (unsigned i = first; i < first + keys_at_once && i < choice.candidates; ++i) {
      const bool is_above = choice.keys[i] > threshold.key;
      const bool is_tie = choice.keys[i] == threshold.key;
      const unsigned taken_ties = my_ties < threshold.ties ? my_ties : threshold.ties;
      if (is_above || (is_tie && my_ties < threshold.ties)) {
        ids[my_above + taken_ties] = first_position + i;
      }
      my_above += is_above ? 1 : 0;
      my_ties += is_tie ? 1 : 0;
    }
    above += total & 0xffffU;
    ties += total >> 16;
  }
}

/// One KV head a block.
__global__ void __launch_bounds__(choose_threads) choose(SelectCommon common) {
  __shared__ DigitMemory memory;
  const unsigned head = blockIdx.x;
  const auto candidates = static_cast<unsigned>(common.candidates.size());
  const auto group = static_cast<unsigned>(common.shape.group());
  const unsigned wanted =
      common.count < candidates ? static_cast<unsigned>(common.count) : candidates;
  const Choice choice{common, head, candidates, wanted,
                      reinterpret_cast<std::uint32_t*>(logits_of(common, head, group))};
  if (threadIdx.x == 0) common.id_count[head] = wanted;
  if (wanted == 0) return;
  for (unsigned i = threadIdx.x; i < candidates; i += choose_threads) {
    choice.keys[i] = key_of(choice.weight(i));
  }
  __syncthreads();
  Threshold threshold{0, candidates};  // all of them
  if (wanted < candidates) threshold = find_threshold(choice, memory);
  write_ids(choice, threshold, memory);
}

}  // namespace

Status choose_largest(const SelectCommon& common, const Launch& launch) {
  const bool softmax = common.shape.group() > 1 && common.reduction != GroupReduction::sum_logits;
  if (softmax && !common.candidates.empty()) {
    const auto heads = static_cast<unsigned>(common.shape.query_heads);
    TERRACE_TRY(
        launch_kernel(launch, {heads, softmax_threads}, "selection", normalize_logits, common));
  }
  const auto heads = static_cast<unsigned>(common.shape.kv_heads);
  return launch_kernel(launch, {heads, choose_threads}, "selection", choose, common);
}

}  // namespace terrace::kernels::cuda
