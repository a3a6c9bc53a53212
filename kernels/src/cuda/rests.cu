// Estimates of what a selection leaves out: see terrace/kernels/estimate.hpp, whose host kernel
// this follows.
//
// The rows and logits of groups are made page by page, each by a block; groups are chosen as
// candidates are; and the entries of a KV head are written by a block.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned page_threads = 128;

/// A page of a KV head.
struct RestOfPage {
  const EstimateRest& op;
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
  /// Where the groups' rows lie: at their numbers, until those that stay move together.
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

  /// Says which rows the groups have left. A thread makes some of the elements of a row, of all
  /// groups; it counts all rows, so that it waits for no other.
  template <typename Elements>
  __device__ void average() const {
    const std::size_t chunk_tokens = op.index.chunk_tokens;
    const std::size_t pages = chunk_tokens / op.groups.page_tokens;
    const std::size_t number = op.pages.begin + page;
    const std::byte* const chunk = op.index.chunks[number / pages];
    const std::size_t first = number % pages * groups();
    const std::byte* const means =
        chunk + op.groups.means_at(op.shape, chunk_tokens, head) + first * op.shape.row_bytes();
    const auto* const sizes = reinterpret_cast<const std::uint16_t*>(
                                  chunk + op.groups.sizes_at(op.shape, chunk_tokens, head)) +
                              first;
    const std::byte* const labels = chunk + op.groups.labels_at(op.shape, chunk_tokens, head) +
                                    number % pages * op.groups.page_tokens;
    const std::size_t position = op.index.first_token + number * op.groups.page_tokens;
    const unsigned begin = first_from(position);
    const unsigned end = first_from(position + op.groups.page_tokens);
    const std::uint32_t* const ids = op.ids + head * op.id_stride;
    std::byte* const* const selected = op.rows + head * op.id_stride;
    for (unsigned group = 0; group < groups(); ++group) {
      const auto is_of_group = [&](unsigned i) {
        return static_cast<unsigned>(labels[ids[i] - position]) == group;
      };
      const std::byte* const mean = means + group * op.shape.row_bytes();
      const unsigned size = sizes[group];
      unsigned rest = size;
      for (unsigned i = begin; i < end; ++i) rest -= is_of_group(i) ? 1U : 0U;
      const bool whole = rest == size;
      for (unsigned k = threadIdx.x; !whole && k < 2 * dims(); k += page_threads) {
        float sum = Elements::load(mean + k * Elements::bytes) * static_cast<float>(size);
        for (unsigned i = begin; i < end; ++i) {
          if (is_of_group(i)) sum -= Elements::load(selected[i] + k * Elements::bytes);
        }
        Elements::store(rest_row(group) + k * Elements::bytes, sum / static_cast<float>(rest));
      }
      if (threadIdx.x == 0) {
        left()[group] = rest;
        rows()[group] = whole ? mean : rest_row(group);
      }
    }
  }

  /// Writes the logits that query heads give to the rows, which are there.
  template <typename Elements>
  __device__ void write_logits(float* shared) const {
    const auto query_heads = static_cast<unsigned>(op.shape.group());
    const RestWork work(op);
    for (unsigned group = 0; group < groups(); ++group) {
      const std::byte* const row = rows()[group];
      const unsigned rest = left()[group];
      for (unsigned q = 0; q < query_heads; ++q) {
        const float* const query =
            op.query + (static_cast<std::size_t>(head) * query_heads + q) * dims();
        float product = 0;
        for (unsigned i = threadIdx.x; i < dims(); i += page_threads) {
          product += query[i] * op.scale * Elements::load(row + i * Elements::bytes);
        }
        product = reduce_block(product, Sum(), shared);
        if (threadIdx.x == 0) {
          op.scratch[work.logits(head) + q * work.stride() + first_group() + group] =
              rest == 0 ? NAN : product + logf(static_cast<float>(rest));
        }
      }
    }
  }
};

/// blockIdx: page, KV head, call.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(page_threads)
    average_pages(const Calls<EstimateRest, capacity> __grid_constant__ calls) {
  __shared__ float shared[page_threads / 32];
  const EstimateRest& op = calls.of_block();
  if (blockIdx.x >= op.pages.size()) return;
  const RestOfPage page{op, blockIdx.y, blockIdx.x};
  page.average<Elements>();
  __syncthreads();
  page.write_logits<Elements>(shared);
}

/// blockIdx: KV head; z: call.
template <unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    write_entries(const Calls<EstimateRest, capacity> __grid_constant__ calls) {
  __shared__ BlockScan<choose_threads>::Shared scan_shared;
  const EstimateRest& op = calls.of_block();
  const unsigned head = blockIdx.x;
  const RestWork work(op);
  const auto* const chosen = reinterpret_cast<const std::uint32_t*>(op.scratch + work.chosen(head));
  const auto* const left = reinterpret_cast<const std::uint32_t*>(op.scratch + work.left(head));
  const std::size_t most = op.most < work.groups() ? op.most : work.groups();
  const std::byte** const rows = op.pseudo.rows + head * op.pseudo.stride;
  float* const bias = op.pseudo.bias + head * op.pseudo.stride;
  BlockScan<choose_threads> scan(scan_shared);
  unsigned entries = 0;
  for (unsigned begin = 0; begin < most; begin += choose_threads) {
    const bool there = begin + threadIdx.x < most;
    const std::uint32_t group = there ? chosen[begin + threadIdx.x] : 0;
    const bool stands = there && left[group] > 0;
    const std::byte* const row = stands ? rows[group] : nullptr;
    unsigned found = 0;
    // Behind the scan all rows of this turn are read; an entry's number is not above its group's.
    const unsigned at = entries + scan.exclusive_sum(stands ? 1 : 0, found);
    if (stands) {
      rows[at] = row;
      bias[at] = logf(static_cast<float>(left[group]));
    }
    entries += found;
  }
  if (threadIdx.x == 0) op.pseudo.count[head] = entries;
}

template <typename Elements, unsigned capacity>
Status launch_estimates(const Calls<EstimateRest, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].shape;
  const auto heads = static_cast<unsigned>(shape.kv_heads);
  const std::size_t pages = calls.largest([](const EstimateRest& op) { return op.pages.size(); });
  if (pages > 0) {
    TERRACE_TRY(launch_kernel(launch,
                              {calls.grid(blocks_for(pages, 1, 0x7fffffffU), heads), page_threads},
                              "estimate_rest", average_pages<Elements, capacity>, calls));
  }
  TERRACE_TRY(choose_largest(calls.all(), launch));
  return launch_kernel(launch, {calls.grid(heads), choose_threads}, "estimate_rest",
                       write_entries<capacity>, calls);
}

template <unsigned capacity>
Status launch_estimates_of(const Calls<EstimateRest, capacity>& calls, const Launch& launch) {
  return with_elements(calls.each[0].shape.dtype, [&](auto elements) {
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
    TERRACE_TRY(
        launch_calls(std::span(batch.begin(), end), EstimateRest::of,
                     [&](const auto& calls) { return launch_estimates_of(calls, launch); }));
    batch = {end, batch.end()};
  }
}

}  // namespace terrace::kernels::cuda
