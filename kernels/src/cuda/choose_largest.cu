// From logits to the positions chosen: a softmax of each query head, a weight for each candidate of
// a KV head, or each page of them, and the largest weights, found digit by digit without sorting.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/launch_kernel.cuh"
#include "rests.hpp"
#include "selection.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned softmax_threads = 1024;
constexpr unsigned digit_bits = 11;
constexpr unsigned digits = 1U << digit_bits;

/// Each candidate has a weight of its own.
struct Tokens {
  unsigned candidates;

  [[nodiscard]] __device__ unsigned most(unsigned) const { return candidates; }
  __device__ void name(unsigned, std::uint32_t*, unsigned) const {}

  [[nodiscard]] __host__ __device__ unsigned count() const { return candidates; }
  [[nodiscard]] __device__ unsigned size(unsigned) const { return 1; }
  [[nodiscard]] __device__ unsigned of(unsigned candidate) const { return candidate; }
};

/// Candidates have the weight of their page.
struct Pages {
  unsigned candidates;
  unsigned page_tokens;
  unsigned page_count;
  unsigned skipped;  ///< tokens of the first page

  [[nodiscard]] __device__ unsigned most(unsigned) const { return candidates; }
  __device__ void name(unsigned, std::uint32_t*, unsigned) const {}
  [[nodiscard]] __host__ __device__ unsigned count() const { return page_count; }
  [[nodiscard]] __device__ unsigned size(unsigned page) const {
    const unsigned begin = page == 0 ? skipped : page * page_tokens;
    const unsigned end = (page + 1) * page_tokens;
    return (end < skipped + candidates ? end : skipped + candidates) - begin;
  }
  [[nodiscard]] __device__ unsigned of(unsigned candidate) const {
    return (skipped + candidate) / page_tokens;
  }
};

/// Candidates are those of a list: numbers in it, which are named by position in the end.
struct Listed {
  unsigned stride;
  const std::uint32_t* positions;  ///< [kv_heads, stride]
  const std::uint32_t* counts;     ///< [kv_heads]

  [[nodiscard]] __device__ unsigned most(unsigned head) const { return counts[head]; }
  /// Makes positions of numbers.
  __device__ void name(unsigned head, std::uint32_t* ids, unsigned count) const {
    __syncthreads();  // they are written
    const std::uint32_t* const own = positions + static_cast<std::size_t>(head) * stride;
    for (unsigned i = threadIdx.x; i < count; i += choose_threads) ids[i] = own[ids[i]];
  }
  [[nodiscard]] __host__ __device__ unsigned count() const { return stride; }
  [[nodiscard]] __device__ unsigned size(unsigned) const { return 1; }
  [[nodiscard]] __device__ unsigned of(unsigned candidate) const { return candidate; }
};

/// A call: a choice among `items`, tokens or pages, with logits in rows of scratch memory.
template <typename Items>
struct Choosing {
  SelectCommon common;
  Items items;

  [[nodiscard]] __device__ float* row(unsigned head, unsigned row) const {
    const std::size_t rows = common.shape.group() + 1;
    return common.scratch + (head * rows + row) * logit_stride(items.count());
  }
};

/// Sets the logits of held candidates in the group's rows to NaN. A block takes a KV head.
template <unsigned capacity>
__global__ void leave_out_held(const Calls<Choosing<Tokens>, capacity> __grid_constant__ calls) {
  const Choosing<Tokens>& call = calls.of_block();
  const SelectCommon& common = call.common;
  const auto group = static_cast<unsigned>(common.shape.group());
  const TokenRange held = common.held.among(common.candidates, blockIdx.x);
  for (std::size_t i = held.begin + threadIdx.x; i < held.end; i += blockDim.x) {
    const std::size_t candidate = common.held.positions[i] - common.candidates.begin;
    for (unsigned q = 0; q < group; ++q) call.row(blockIdx.x, q)[candidate] = NAN;
  }
}

/// Replaces the logits of a row by its query head's share of weights: their softmax, or the limited
/// logits themselves; if all are -inf, zeros. A block takes a query head.
template <typename Items, unsigned capacity>
__global__ void __launch_bounds__(softmax_threads)
    make_addends(const Calls<Choosing<Items>, capacity> __grid_constant__ calls) {
  __shared__ float shared[softmax_threads / 32];
  const Choosing<Items>& call = calls.of_block();
  const auto group = static_cast<unsigned>(call.common.shape.group());
  const unsigned count = call.items.count();
  float* const row = call.row(blockIdx.x / group, blockIdx.x % group);
  const auto logit = [row](unsigned i) { return row[i]; };
  float maximum = -INFINITY;
  read_ahead<softmax_threads>(count, logit,
                              [&](unsigned, float own) { maximum = fmaxf(maximum, limit(own)); });
  maximum = reduce_block(maximum, Maximum(), shared);
  if (call.common.reduction == GroupReduction::sum_logits) {
    read_ahead<softmax_threads>(count, logit, [&](unsigned i, float own) {
      row[i] = maximum == -INFINITY ? 0.0F : limit(own);
    });
    return;
  }
  const float base = maximum == -INFINITY ? 0.0F : maximum;
  float sum = 0;
  read_ahead<softmax_threads>(count, logit, [&](unsigned i, float own) {
    row[i] = expf(limit(own) - base);
    sum += row[i];
  });
  sum = reduce_block(sum, Sum(), shared);
  const float factor = sum > 0 ? 1.0F / sum : 0.0F;
  read_ahead<softmax_threads>(count, logit, [&](unsigned i, float own) { row[i] = own * factor; });
}

/// The choice of one KV head.
template <typename Items>
struct Choice {
  const Choosing<Items>& call;
  unsigned head;
  unsigned wanted;      // candidates
  std::uint32_t* keys;  // [items], in place of the weights

  /// The weight of an item. If the group has one query head, its logit itself is ranked: softmax
  /// keeps order.
  [[nodiscard]] __device__ float weight(unsigned i) const {
    const auto group = static_cast<unsigned>(call.common.shape.group());
    if (group == 1) return call.row(head, 0)[i];
    float weight = 0;
    for (unsigned q = 0; q < group; ++q) {
      const float own = call.row(head, q)[i];
      switch (call.common.reduction) {
        case GroupReduction::sum_softmax:
          weight += own;
          break;
        case GroupReduction::max_softmax:
          weight = fmaxf(weight, own);
          break;
        case GroupReduction::sum_logits:
          weight = limit(weight + own);
          break;
      }
    }
    return weight;
  }
};

/// Candidates of items with keys above `key` are chosen, and the first `ties` with that key.
struct Threshold {
  std::uint32_t key;
  unsigned ties;
};

/// Held candidates rank after all others.
template <typename Items>
__device__ void give_lowest_keys(const Choice<Items>& choice) {
  const SelectCommon& common = choice.call.common;
  const TokenRange held = common.held.among(common.candidates, choice.head);
  for (std::size_t i = held.begin + threadIdx.x; i < held.end; i += choose_threads) {
    choice.keys[common.held.positions[i] - common.candidates.begin] = 0;
  }
}

struct DigitMemory {
  unsigned counts[digits];
  BlockScan<choose_threads>::Shared scan;
  std::uint32_t digit;
  unsigned above;
};

/// Finds the digit of the key that the `wanted`-th candidate among those counted has, by falling
/// keys: it, and how many candidates have a higher one, are left in `memory`.
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

/// Finds the key of the `wanted`-th candidate, 0 < wanted < candidates, from its highest digit on.
template <typename Items>
__device__ Threshold find_threshold(const Choice<Items>& choice, DigitMemory& memory) {
  std::uint32_t prefix = 0;  // the digits of the key sought that are known
  unsigned wanted = choice.wanted;
  unsigned shift = 32;
  while (shift > 0) {
    const unsigned bits = shift < digit_bits ? shift : digit_bits;
    shift -= bits;
    for (unsigned i = threadIdx.x; i < digits; i += choose_threads) memory.counts[i] = 0;
    __syncthreads();
    read_ahead<choose_threads>(
        choice.call.items.count(), [&](unsigned i) { return choice.keys[i]; },
        [&](unsigned i, std::uint32_t key) {
          const bool counts = shift + bits == 32 || key >> (shift + bits) == prefix;
          if (!counts) return;
          atomicAdd(&memory.counts[key >> shift & ((1U << bits) - 1)], choice.call.items.size(i));
        });
    __syncthreads();
    find_digit(memory, wanted);
    wanted -= memory.above;
    prefix = prefix << bits | memory.digit;
    __syncthreads();
  }
  return {prefix, wanted};
}

/// blockIdx: KV head; z: call.
template <typename Items, unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    choose(const Calls<Choosing<Items>, capacity> __grid_constant__ calls) {
  __shared__ DigitMemory memory;
  const Choosing<Items>& call = calls.of_block();
  const SelectCommon& common = call.common;
  const Items& items = call.items;
  const unsigned head = blockIdx.x;
  const unsigned candidates = items.most(head);
  const auto group = static_cast<unsigned>(common.shape.group());
  const unsigned most = static_cast<unsigned>(common.wanted(head));
  const unsigned wanted = most < candidates ? most : candidates;
  const Choice<Items> choice{call, head, wanted,
                             reinterpret_cast<std::uint32_t*>(call.row(head, group))};
  if (threadIdx.x == 0) common.id_count[head] = wanted;
  if (wanted == 0) return;
  read_ahead<choose_threads>(
      items.count(), [&](unsigned i) { return choice.weight(i); },
      [&](unsigned i, float weight) { choice.keys[i] = key_of(weight); });
  __syncthreads();
  if (common.held.positions != nullptr) {
    give_lowest_keys(choice);
    __syncthreads();
  }
  Threshold threshold{0, candidates};  // all of them
  if (wanted < candidates) threshold = find_threshold(choice, memory);
  // Among items with one key the lower come first, and the last item gives its lowest positions.
  const auto standing = [&](unsigned i) {
    const std::uint32_t key = choice.keys[items.of(i)];
    if (key > threshold.key) return Standing::in;
    return key == threshold.key ? Standing::cut : Standing::out;
  };
  std::uint32_t* const ids = common.ids + head * common.id_stride;
  write_positions(static_cast<unsigned>(common.candidates.begin), candidates, threshold.ties,
                  standing, ids, memory.scan);
  items.name(head, ids, wanted);
}

template <unsigned capacity>
Status launch_leaving_out(const Calls<Choosing<Tokens>, capacity>& calls, const Launch& launch) {
  const bool held = std::ranges::any_of(calls.all(), [](const Choosing<Tokens>& call) {
    return call.common.held.positions != nullptr && candidates_to_score(call.common) > 0;
  });
  if (!held) return {};
  const dim3 grid = calls.grid(static_cast<unsigned>(calls.each[0].common.shape.kv_heads));
  return launch_kernel(launch, {grid, softmax_threads}, "selection", leave_out_held<capacity>,
                       calls);
}
/// Pages have candidates that are held and others; what is proposed is never held.
template <typename Items, unsigned capacity>
Status launch_leaving_out(const Calls<Choosing<Items>, capacity>& /*calls*/,
                          const Launch& /*launch*/) {
  return {};
}

template <typename Items, unsigned capacity>
Status launch_choice(const Calls<Choosing<Items>, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].common.shape;
  const bool scored = std::ranges::any_of(calls.all(), [](const Choosing<Items>& call) {
    return candidates_to_score(call.common) > 0;
  });
  TERRACE_TRY(launch_leaving_out(calls, launch));
  if (shape.group() > 1 && scored) {
    const dim3 grid = calls.grid(static_cast<unsigned>(shape.query_heads));
    TERRACE_TRY(launch_kernel(launch, {grid, softmax_threads}, "selection",
                              make_addends<Items, capacity>, calls));
  }
  const dim3 grid = calls.grid(static_cast<unsigned>(shape.kv_heads));
  return launch_kernel(launch, {grid, choose_threads}, "selection", choose<Items, capacity>, calls);
}

template <typename Select>
Choosing<Tokens> choosing_of(const Select& op) {
  return {op.common, {static_cast<unsigned>(op.common.candidates.size())}};
}

Choosing<Pages> choosing_of(const PageSelect& op) {
  const CandidatePages pages = CandidatePages::of(op);
  return {
      op.common,
      {static_cast<unsigned>(op.common.candidates.size()), static_cast<unsigned>(pages.page_tokens),
       static_cast<unsigned>(pages.count), static_cast<unsigned>(pages.skipped)}};
}

Choosing<Listed> choosing_of(const RefineSelect& op) {
  SelectCommon common = op.common;
  common.candidates = {0, op.proposed_stride};
  common.held = {};
  return {common, {static_cast<unsigned>(op.proposed_stride), op.proposed, op.proposed_count}};
}

/// Candidates are groups; how many are chosen is written where entries are counted afterwards.
Choosing<Tokens> choosing_of(const EstimateRest& op) {
  const RestWork work(op);
  SelectCommon common{.shape = op.shape,
                      .candidates = {0, work.groups()},
                      .count = {.mean = op.most},
                      .ids = reinterpret_cast<std::uint32_t*>(op.scratch + work.chosen(0)),
                      .id_count = op.pseudo.count,
                      .id_stride = work.groups(),
                      .scratch = op.scratch + work.logits(0)};
  return {common, {static_cast<unsigned>(work.groups())}};
}

template <typename Select>
Status choose_all(std::span<const Select> batch, const Launch& launch) {
  return launch_calls(
      batch, [](const Select& op) { return choosing_of(op); },
      [&](const auto& calls) { return launch_choice(calls, launch); });
}

}  // namespace

Status choose_largest(std::span<const PqSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const ExactSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const ChannelSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const PageSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const RefineSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const EstimateRest> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const SignSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}

}  // namespace terrace::kernels::cuda
