// Estimates of the rows that a selection leaves out: see terrace/kernels/estimate.hpp, whose host
// kernel this follows.
//
// The rows of groups are made page by page, each by a block; and the entries of a KV head are
// written by a block. If not all groups may have an entry, their logits are made, too, and they are
// chosen as candidates are.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/chunk_part.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "rests.hpp"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned page_threads = 256;

/// The rests of an attention, and where the parts of its index lie.
struct RestCall {
  EstimateRest op;
  GroupParts parts;

  static RestCall of(const DecodeAttention& attention) {
    const EstimateRest op = EstimateRest::of(attention);
    return {op, GroupParts::of(op.shape, op.groups, op.index.chunk_tokens)};
  }
};

/// A page of a KV head.
struct RestOfPage {
  const EstimateRest& op;
  const GroupParts& parts;
  unsigned head;
  unsigned page;  ///< from the first one on that has entries

  [[nodiscard]] __device__ unsigned dims() const {
    return static_cast<unsigned>(op.shape.head_dim);
  }
  [[nodiscard]] __device__ unsigned groups() const {
    return static_cast<unsigned>(op.groups.groups);
  }
  [[nodiscard]] __device__ std::size_t first_group() const {
    return static_cast<std::size_t>(page) * groups();
  }
  /// The groups' rows: each at its group's number, until the rows that stay are packed.
  [[nodiscard]] __device__ const std::byte** rows() const {
    return op.pseudo.rows + head * op.pseudo.stride + first_group();
  }
  [[nodiscard]] __device__ std::byte* rest_row(unsigned group) const {
    return op.means + (head * op.pseudo.stride + first_group() + group) * op.shape.row_bytes();
  }
  [[nodiscard]] __device__ std::uint32_t* left() const {
    return reinterpret_cast<std::uint32_t*>(op.scratch + RestWork(op).left(head)) + first_group();
  }

  /// The first selected row that does not lie before `position`.
  [[nodiscard]] __device__ unsigned first_from(std::size_t position) const {
    const std::uint32_t* const ids = op.ids + head * op.id_stride;
    unsigned low = 0;
    unsigned high = op.id_count[head];
    while (low < high) {
      const unsigned middle = (low + high) / 2;
      ids[middle] < position ? low = middle + 1 : high = middle;
    }
    return low;
  }

  /// The selected rows that lie in the page. Two lanes look for the two ends side by side.
  [[nodiscard]] __device__ TokenRange selected_rows() const {
    const std::size_t ends = position() + threadIdx.x % 2 * op.groups.page_tokens;
    const unsigned found = first_from(ends);
    return {__shfl_sync(all_lanes, found, 0), __shfl_sync(all_lanes, found, 1)};
  }

  /// Counted from the index's first page on.
  [[nodiscard]] __device__ unsigned number() const {
    return static_cast<unsigned>(op.pages.begin) + page;
  }
  [[nodiscard]] __device__ std::size_t position() const {
    return op.index.first_token + number() * op.groups.page_tokens;
  }

  [[nodiscard]] __device__ const std::byte* chunk() const {
    return op.index.chunks[number() / parts.pages_of_chunk];
  }
  [[nodiscard]] __device__ unsigned group_in_chunk(unsigned group) const {
    return number() % parts.pages_of_chunk * groups() + group;
  }
  /// The mean of all rows of a group.
  [[nodiscard]] __device__ const std::byte* mean(unsigned group) const {
    return chunk() + parts.means.of_head(head) + group_in_chunk(group) * op.shape.row_bytes();
  }
  [[nodiscard]] __device__ unsigned size(unsigned group) const {
    return reinterpret_cast<const std::uint16_t*>(chunk() +
                                                  parts.sizes.of_head(head))[group_in_chunk(group)];
  }
  [[nodiscard]] __device__ std::byte* const* selected() const {
    return op.rows + head * op.id_stride;
  }

  /// Waits for all threads of the block. Returns whether all rows that it reads are whole.
  template <typename Elements>
  [[nodiscard]] __device__ bool sync_and_find_whole(const TokenRange& run) const {
    bool whole = is_whole<Elements>(mean(0), dims()) && is_whole<Elements>(op.means, dims());
    for (std::size_t i = run.begin + threadIdx.x; i < run.end; i += blockDim.x) {
      whole = whole && is_whole<Elements>(selected()[i], dims());
    }
    return __syncthreads_and(whole ? 1 : 0) != 0;
  }

  /// Subtracts the rows of a mask from a lane's sums, in order; bit i is row `first + i`.
  template <typename Elements, bool whole>
  __device__ void subtract_rows(std::size_t first, unsigned mask, unsigned at, unsigned there,
                                float* sums) const {
    constexpr unsigned width = Elements::per_vector;
    float values[width];
    if constexpr (whole) {
      constexpr unsigned at_once = 4;
      while (mask != 0) {
        uint4 raw[at_once];
        const unsigned left = static_cast<unsigned>(__popc(mask));
        unsigned row = 0;
#pragma unroll
        for (unsigned i = 0; i < at_once; ++i) {
          // Once more the last one, after it.
          row = mask != 0 ? static_cast<unsigned>(__ffs(static_cast<int>(mask))) - 1 : row;
          mask &= mask - 1;
          raw[i] = load_whole<Elements>(selected()[first + row] + at * Elements::bytes);
        }
#pragma unroll
        for (unsigned i = 0; i < at_once; ++i) {
          Elements::widen(raw[i], values);
          for (unsigned v = 0; i < left && v < width; ++v) sums[v] -= values[v];
        }
      }
    } else {
      for (; mask != 0; mask &= mask - 1) {
        const std::byte* const row =
            selected()[first + static_cast<unsigned>(__ffs(static_cast<int>(mask))) - 1];
        load_vector<Elements>(row + at * Elements::bytes, there, values);
        for (unsigned v = 0; v < width; ++v) sums[v] -= values[v];
      }
    }
  }

  /// Finds the row that a group has left, and how many rows it stands for. A warp calls it
  /// together; lanes take 16 bytes of the rows each.
  template <typename Elements, bool whole>
  __device__ void average(unsigned group, const TokenRange& run) const {
    constexpr unsigned width = Elements::per_vector;
    const unsigned lane = threadIdx.x % 32;
    const std::byte* const labels = chunk() + parts.labels.of_head(head) +
                                    number() % parts.pages_of_chunk * op.groups.page_tokens;
    const std::uint32_t* const ids = op.ids + head * op.id_stride;
    // Which of the 32 rows from `begin` on are the group's.
    const auto rows_of_group = [&](std::size_t begin) {
      const std::size_t i = begin + lane;
      const bool is_one =
          i < run.end && static_cast<unsigned>(labels[ids[i] - position()]) == group;
      return __ballot_sync(all_lanes, is_one ? 1 : 0);
    };
    const unsigned all = size(group);
    unsigned rest = all;
    for (std::size_t begin = run.begin; begin < run.end; begin += 32) {
      rest -= static_cast<unsigned>(__popc(rows_of_group(begin)));
    }
    const bool untouched = rest == all;
    const unsigned elements = 2 * dims();
    for (unsigned first = 0; !untouched && first < elements; first += 32 * width) {
      const unsigned at = first + lane * width;
      const unsigned there = at < elements ? elements - at : 0;
      // A lane without elements of whole rows reads the first ones, and writes none.
      const unsigned read_at = whole && there == 0 ? 0 : at;
      float sums[width];
      if constexpr (whole) {
        Elements::widen(load_whole<Elements>(mean(group) + read_at * Elements::bytes), sums);
      } else {
        load_vector<Elements>(mean(group) + at * Elements::bytes, there, sums);
      }
      for (unsigned v = 0; v < width; ++v) sums[v] *= static_cast<float>(all);
      for (std::size_t begin = run.begin; begin < run.end; begin += 32) {
        subtract_rows<Elements, whole>(begin, rows_of_group(begin), read_at, there, sums);
      }
      for (unsigned v = 0; v < width; ++v) sums[v] /= static_cast<float>(rest);
      store_vector<Elements>(rest_row(group) + at * Elements::bytes, there, sums);
    }
    if (lane == 0) {
      left()[group] = rest;
      rows()[group] = untouched ? mean(group) : rest_row(group);
    }
    __syncwarp();
  }

  /// Writes the logits that query heads give to a group's row, which is there. A warp calls it
  /// together.
  template <typename Elements, bool whole>
  __device__ void write_logits(unsigned group) const {
    constexpr unsigned width = Elements::per_vector;
    const auto query_heads = static_cast<unsigned>(op.shape.group());
    const RestWork work(op);
    const std::byte* const row = rows()[group];
    const unsigned rest = left()[group];
    for (unsigned q = 0; q < query_heads; ++q) {
      const float* const query =
          op.query + (static_cast<std::size_t>(head) * query_heads + q) * dims();
      float product = 0;
      for (unsigned at = threadIdx.x % 32 * width; at < dims(); at += 32 * width) {
        float values[width];
        if constexpr (whole) {
          // The warp itself may have written the row: no load of constant memory.
          Elements::widen(*reinterpret_cast<const uint4*>(row + at * Elements::bytes), values);
        } else {
          load_vector<Elements>(row + at * Elements::bytes, dims() - at, values);
        }
        for (unsigned v = 0; v < width; ++v) {
          if (at + v < dims()) product += query[at + v] * op.scale * values[v];
        }
      }
      product = warp_sum(product);
      if (threadIdx.x % 32 == 0) {
        op.scratch[work.logits(head) + q * work.stride() + first_group() + group] =
            rest == 0 ? NAN : product + logf(static_cast<float>(rest));
      }
    }
  }

  /// Warps take the page's groups in turn.
  template <typename Elements, bool whole>
  __device__ void estimate(const TokenRange& run) const {
    const bool chooses = RestWork(op).chooses();
    for (unsigned group = threadIdx.x / 32; group < groups(); group += page_threads / 32) {
      average<Elements, whole>(group, run);
      if (chooses) write_logits<Elements, whole>(group);
    }
  }
};

/// blockIdx: page, KV head, call.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(page_threads)
    average_pages(const Calls<RestCall, capacity> __grid_constant__ calls) {
  const RestCall& call = calls.of_block();
  if (blockIdx.x >= call.op.pages.size()) return;
  const RestOfPage page{call.op, call.parts, blockIdx.y, blockIdx.x};
  const TokenRange run = page.selected_rows();
  if (page.sync_and_find_whole<Elements>(run)) {
    page.estimate<Elements, true>(run);
  } else {
    page.estimate<Elements, false>(run);
  }
}

/// blockIdx: KV head; z: call.
template <unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    write_entries(const Calls<RestCall, capacity> __grid_constant__ calls) {
  __shared__ BlockScan<choose_threads>::Shared scan_shared;
  const EstimateRest& op = calls.of_block().op;
  const unsigned head = blockIdx.x;
  const RestWork work(op);
  const auto* const chosen = reinterpret_cast<const std::uint32_t*>(op.scratch + work.chosen(head));
  const auto* const left = reinterpret_cast<const std::uint32_t*>(op.scratch + work.left(head));
  const bool chooses = work.chooses();
  const std::size_t most = work.entries();
  const std::byte** const rows = op.pseudo.rows + head * op.pseudo.stride;
  float* const bias = op.pseudo.bias + head * op.pseudo.stride;
  BlockScan<choose_threads> scan(scan_shared);
  unsigned entries = 0;
  for (unsigned begin = 0; begin < most; begin += choose_threads) {
    const bool there = begin + threadIdx.x < most;
    const unsigned number = begin + threadIdx.x;
    const std::uint32_t group = there && chooses ? chosen[number] : number;
    const bool stands = there && left[group] > 0;
    const std::byte* const row = stands ? rows[group] : nullptr;
    unsigned found = 0;
    // After the scan all rows of this round are read; an entry's number is not above its group's.
    const unsigned at = entries + scan.exclusive_sum(stands ? 1 : 0, found);
    if (stands) {
      rows[at] = row;
      bias[at] = logf(static_cast<float>(left[group]));
    }
    entries += found;
  }
  if (threadIdx.x == 0) {
    op.pseudo.count[head] = entries;
    if (op.counted != nullptr) op.counted[head] = entries;
  }
}

template <typename Elements, unsigned capacity>
Status launch_estimates(const Calls<RestCall, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].op.shape;
  const auto heads = static_cast<unsigned>(shape.kv_heads);
  const std::size_t pages =
      calls.largest([](const RestCall& call) { return call.op.pages.size(); });
  if (pages > 0) {
    TERRACE_TRY(launch_kernel(launch,
                              {calls.grid(blocks_for(pages, 1, 0x7fffffffU), heads), page_threads},
                              "estimate_rest", average_pages<Elements, capacity>, calls));
  }
  std::array<EstimateRest, capacity> choices;
  std::size_t count = 0;
  for (const RestCall& call : calls.all()) {
    if (RestWork(call.op).chooses()) choices[count++] = call.op;
  }
  if (count > 0) TERRACE_TRY(choose_largest(std::span(choices).first(count), launch));
  return launch_kernel(launch, {calls.grid(heads), choose_threads}, "estimate_rest",
                       write_entries<capacity>, calls);
}

template <unsigned capacity>
Status launch_estimates_of(const Calls<RestCall, capacity>& calls, const Launch& launch) {
  return with_elements(calls.each[0].op.shape.dtype, [&](auto elements) {
    return launch_estimates<decltype(elements)>(calls, launch);
  });
}

}  // namespace

Status write_rests(std::span<const DecodeAttention> batch, const Launch& launch) {
  const auto has_rests = [](const DecodeAttention& op) { return op.rests.ids != nullptr; };
  while (true) {
    batch = {std::ranges::find_if(batch, has_rests), batch.end()};
    if (batch.empty()) return {};
    const auto end = std::ranges::find_if_not(batch, has_rests);
    TERRACE_TRY(launch_calls(std::span(batch.begin(), end), RestCall::of, [&](const auto& calls) {
      return launch_estimates_of(calls, launch);
    }));
    batch = {end, batch.end()};
  }
}

}  // namespace terrace::kernels::cuda
