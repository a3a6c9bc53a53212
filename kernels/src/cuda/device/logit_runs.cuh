// Runs of logits, and what they leave for the softmax of their query head: the block that makes the
// logits of a run finds the largest of them, and the sum of exponentials relative to it.
//
//   const LogitBlock block{head, first_query, queries, begin, end, logits, stride};
//   ...                                       // the logits of the block are written
//   leave_out_held(sums, op.common, block);   // where an op has candidates that are held
//   leave_sums(sums, block);
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>

#include "device/choice.cuh"
#include "rests.hpp"
#include "selection.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::kernels::cuda {

// Logits of a run.
inline constexpr unsigned run_logits_max = 512;
inline constexpr unsigned run_pages = 128;
inline constexpr unsigned run_proposed = 256;
inline constexpr unsigned run_groups_max = 256;  // those of a page are fewer

/// How items that have logits lie in runs.
struct LogitRuns {
  unsigned items = 0;
  unsigned size = run_logits_max;
  unsigned skipped = 0;  ///< items that the first run lacks, which begins with item 0
  unsigned count = 0;

  static constexpr LogitRuns of(std::size_t items, unsigned size = run_logits_max,
                                std::size_t skipped = 0) noexcept {
    return {static_cast<unsigned>(items), size, static_cast<unsigned>(skipped),
            static_cast<unsigned>(divide_up(skipped + items, std::size_t{size}))};
  }
};

/// Where runs leave their sums: [kv_heads, group, runs, 2], the largest logit first.
struct LogitSums {
  float* first = nullptr;  ///< null where the group has one query head: nobody reads sums
  std::size_t of_head = 0;
  LogitRuns runs;

  /// The place that the scratch memory of a selection has for them.
  static constexpr LogitSums of(const SelectCommon& common, const LogitRuns& runs) noexcept {
    const KvShape& shape = common.shape;
    if (shape.group() == 1) return {};
    const std::size_t logits = shape.kv_heads * (shape.group() + 1) * logit_stride(runs.items);
    return {common.scratch + logits, SelectionTiles::floats(shape, runs.items), runs};
  }
  [[nodiscard]] __device__ float* at(unsigned head, unsigned query, unsigned run) const {
    return first + head * of_head + (std::size_t{query} * runs.count + run) * 2;
  }
};

constexpr LogitSums sums_of_candidates(const SelectCommon& common) noexcept {
  return LogitSums::of(common, LogitRuns::of(common.candidates.size()));
}
/// `pages` have candidates. An item is a page.
constexpr LogitSums sums_of_pages(const SelectCommon& common, std::size_t pages) noexcept {
  return LogitSums::of(common, LogitRuns::of(pages, run_pages));
}
constexpr LogitSums sums_of_proposed(const RefineSelect& op) noexcept {
  return LogitSums::of(op.common, LogitRuns::of(op.proposed_stride, run_proposed));
}
/// Runs begin with pages. The first page has `skipped` tokens before the first candidate.
constexpr LogitSums sums_of_page_tokens(const SelectCommon& common, std::size_t skipped) noexcept {
  return LogitSums::of(common, LogitRuns::of(common.candidates.size(), run_logits_max, skipped));
}
/// An item is a group, a run a page: more sums than the room of a selection has.
constexpr LogitSums sums_of_groups(const EstimateRest& op) noexcept {
  if (op.shape.group() == 1) return {};
  const RestWork work(op);
  return {op.scratch + work.sums(0), work.sum_floats(),
          LogitRuns::of(work.groups(), static_cast<unsigned>(op.groups.groups))};
}

/// The logits that a block makes: of some query heads of a KV head, for items of whole runs.
struct LogitBlock {
  unsigned head;
  unsigned first_query;  ///< of the group
  unsigned queries;
  unsigned begin;
  unsigned end;
  float* logits;  ///< [queries, stride], for all items
  std::size_t stride;
};

/// Sets the logits of held candidates to NaN. Every thread of the block calls it.
__device__ inline void leave_out_held(const LogitSums& sums, const SelectCommon& common,
                                      const LogitBlock& block) {
  if (sums.first == nullptr || common.held.positions == nullptr) return;
  const std::size_t begin = common.candidates.begin;
  const TokenRange held = common.held.among({begin + block.begin, begin + block.end}, block.head);
  __syncthreads();  // other threads may have written these logits
  for (std::size_t i = held.begin + threadIdx.x; i < held.end; i += blockDim.x) {
    float* const logits = block.logits + (common.held.positions[i] - begin);
    for (unsigned q = 0; q < block.queries; ++q) logits[q * block.stride] = NAN;
  }
}

/// Leaves the sums of at most `most` logits. A warp calls it together, and has them in registers.
template <unsigned most>
__device__ inline void sum_run(const float* logits, unsigned count, float* sums) {
  constexpr unsigned each = most / 32;
  const unsigned lane = threadIdx.x % 32;
  float own[each];
  float maximum = -INFINITY;
#pragma unroll
  for (unsigned k = 0; k < each; ++k) {
    const unsigned i = lane + k * 32;
    own[k] = i < count ? limit(logits[i]) : -INFINITY;
  }
#pragma unroll
  for (unsigned k = 0; k < each; ++k) maximum = fmaxf(maximum, own[k]);
  maximum = warp_max(maximum);
  const float base = maximum == -INFINITY ? 0.0F : maximum;
  float sum = 0;
#pragma unroll
  for (unsigned k = 0; k < each; ++k) sum += expf(own[k] - base);
  sum = warp_sum(sum);
  if (lane != 0) return;
  sums[0] = maximum;
  sums[1] = sum;
}

/// Leaves the sums of the block's runs, of at most `most` logits, which its warps take in turn.
/// Every thread of the block calls it.
template <unsigned most = run_logits_max>
__device__ inline void leave_sums(const LogitSums& sums, const LogitBlock& block) {
  if (sums.first == nullptr) return;
  __syncthreads();  // all logits are there
  const LogitRuns& runs = sums.runs;
  const unsigned first = (block.begin + runs.skipped) / runs.size;
  const unsigned count = (block.end + runs.skipped + runs.size - 1) / runs.size - first;
  for (unsigned i = threadIdx.x / 32; i < block.queries * count; i += blockDim.x / 32) {
    const unsigned q = i / count;
    const unsigned run = first + i % count;
    const unsigned from = run * runs.size;
    const unsigned begin = from < runs.skipped ? 0 : from - runs.skipped;
    const unsigned behind = from + runs.size - runs.skipped;
    const unsigned end = behind < block.end ? behind : block.end;
    sum_run<most>(block.logits + q * block.stride + begin, end - begin,
                  sums.at(block.head, block.first_query + q, run));
  }
}

}  // namespace terrace::kernels::cuda
