// Estimates of what a selection leaves out: see terrace/kernels/estimate.hpp, whose host kernel
// this follows.
//
// Means and logits are made page by page, each by a block; groups are chosen as candidates are; and
// the entries of a KV head are written by a block.
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
  [[nodiscard]] __device__ float* means() const {
    return op.scratch + RestWork(op).means(head) + first_group() * 2 * dims();
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

  /// Makes the means of what is not selected. A thread has some of the elements of a row, of all
  /// groups; it counts all rows, so that it waits for no other.
  template <typename Elements>
  __device__ void average() const {
    const std::size_t chunk_tokens = op.index.chunk_tokens;
    const std::size_t pages = chunk_tokens / op.groups.page_tokens;
    const std::size_t number = op.pages().begin + page;
    const std::byte* const chunk = op.index.chunks[number / pages];
    const std::size_t first = number % pages * groups();
    const auto* const stored = reinterpret_cast<const std::uint16_t*>(
                                   chunk + op.groups.means_at(op.shape, chunk_tokens, head)) +
                               first * 2 * dims();
    const auto* const sizes = reinterpret_cast<const std::uint16_t*>(
                                  chunk + op.groups.sizes_at(op.shape, chunk_tokens, head)) +
                              first;
    const std::byte* const labels = chunk + op.groups.labels_at(op.shape, chunk_tokens, head) +
                                    number % pages * op.groups.page_tokens;
    const std::size_t position = op.index.first_token + number * op.groups.page_tokens;
    const unsigned begin = first_from(position);
    const unsigned end = first_from(position + op.groups.page_tokens);
    const std::uint32_t* const ids = op.ids + head * op.id_stride;
    std::byte* const* const rows = op.rows + head * op.id_stride;
    for (unsigned group = 0; group < groups(); ++group) {
      const auto is_of_group = [&](unsigned i) {
        return static_cast<unsigned>(labels[ids[i] - position]) == group;
      };
      unsigned rest = sizes[group];
      for (unsigned i = begin; i < end; ++i) rest -= is_of_group(i) ? 1U : 0U;
      const bool whole = rest == sizes[group];
      for (unsigned k = threadIdx.x; k < 2 * dims(); k += page_threads) {
        float mean = f16_to_f32(stored[group * 2 * dims() + k]);
        if (!whole) {
          mean *= static_cast<float>(sizes[group]);
          for (unsigned i = begin; i < end; ++i) {
            if (is_of_group(i)) mean -= Elements::load(rows[i] + k * Elements::bytes);
          }
          mean /= static_cast<float>(rest);
        }
        means()[group * 2 * dims() + k] = mean;
      }
      if (threadIdx.x == 0) left()[group] = rest;
    }
  }

  /// Writes the logits that query heads give to the means, which are there.
  __device__ void write_logits(float scale, float* shared) const {
    const auto query_heads = static_cast<unsigned>(op.shape.group());
    const RestWork work(op);
    for (unsigned group = 0; group < groups(); ++group) {
      const float* const mean = means() + group * 2 * dims();
      const unsigned rest = left()[group];
      for (unsigned q = 0; q < query_heads; ++q) {
        const float* const query =
            op.query + (static_cast<std::size_t>(head) * query_heads + q) * dims();
        float product = 0;
        for (unsigned i = threadIdx.x; i < dims(); i += page_threads) {
          product += query[i] * scale * mean[i];
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
    average_pages(const Calls<EstimateRest, capacity> __grid_constant__ calls, float scale) {
  __shared__ float shared[page_threads / 32];
  const EstimateRest& op = calls.of_block();
  if (blockIdx.x >= op.pages().size()) return;
  const RestOfPage page{op, blockIdx.y, blockIdx.x};
  page.average<Elements>();
  __syncthreads();
  page.write_logits(scale, shared);
}

/// blockIdx: KV head; z: call.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    write_entries(const Calls<EstimateRest, capacity> __grid_constant__ calls) {
  __shared__ BlockScan<choose_threads>::Shared scan_shared;
  const EstimateRest& op = calls.of_block();
  const unsigned head = blockIdx.x;
  const RestWork work(op);
  auto* const chosen = reinterpret_cast<std::uint32_t*>(op.scratch + work.chosen(head));
  const auto* const left = reinterpret_cast<const std::uint32_t*>(op.scratch + work.left(head));
  const std::size_t most = op.most < work.groups() ? op.most : work.groups();
  BlockScan<choose_threads> scan(scan_shared);
  unsigned entries = 0;
  for (unsigned begin = 0; begin < most; begin += choose_threads) {
    const bool there = begin + threadIdx.x < most;
    const std::uint32_t group = there ? chosen[begin + threadIdx.x] : 0;
    const bool stands = there && left[group] > 0;
    unsigned found = 0;
    const unsigned at = entries + scan.exclusive_sum(stands ? 1 : 0, found);
    if (stands) {
      const std::size_t place = head * op.pseudo.stride + at;
      chosen[at] = group;  // those read so far are no longer needed
      op.pseudo.rows[place] = op.means + place * op.shape.row_bytes();
      op.pseudo.bias[place] = logf(static_cast<float>(left[group]));
    }
    entries += found;
  }
  if (threadIdx.x == 0) op.pseudo.count[head] = entries;
  __syncthreads();
  const std::size_t numbers = 2 * op.shape.head_dim;
  const float* const means = op.scratch + work.means(head);
  std::byte* const rows = op.means + head * op.pseudo.stride * op.shape.row_bytes();
  for (std::size_t i = threadIdx.x; i < entries * numbers; i += choose_threads) {
    Elements::store(rows + i * Elements::bytes, means[chosen[i / numbers] * numbers + i % numbers]);
  }
}

template <typename Elements, unsigned capacity>
Status launch_estimates(const Calls<EstimateRest, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].shape;
  const auto heads = static_cast<unsigned>(shape.kv_heads);
  const std::size_t pages = calls.largest([](const EstimateRest& op) { return op.pages().size(); });
  if (pages > 0) {
    TERRACE_TRY(launch_kernel(
        launch, {calls.grid(blocks_for(pages, 1, 0x7fffffffU), heads), page_threads},
        "estimate_rest", average_pages<Elements, capacity>, calls, logit_scale(shape)));
  }
  TERRACE_TRY(choose_largest(calls.all(), launch));
  return launch_kernel(launch, {calls.grid(heads), choose_threads}, "estimate_rest",
                       write_entries<Elements, capacity>, calls);
}

template <unsigned capacity>
Status launch_estimates_of(const Calls<EstimateRest, capacity>& calls, const Launch& launch) {
  return with_elements(calls.each[0].shape.dtype, [&](auto elements) {
    return launch_estimates<decltype(elements)>(calls, launch);
  });
}

}  // namespace

Status estimate_rest(std::span<const EstimateRest> batch, const Launch& launch) {
  return launch_calls(batch, [&](const auto& calls) { return launch_estimates_of(calls, launch); });
}

}  // namespace terrace::kernels::cuda
