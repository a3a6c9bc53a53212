// Product quantisation: selection by look-up tables.
#include <cuda_runtime.h>

#include <cstdint>

#include "device/calls.cuh"
#include "device/launch_kernel.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned tile = 2048;             // candidates of a block
constexpr unsigned table_floats = 1 << 13;  // of look-up tables at once: 32 KiB
constexpr unsigned heads_of_thread = 4;     // query heads, whose products a thread makes at once

/// How the tables of a group are cut so that they fit: whole query heads, or of one head some
/// sub-spaces at a time.
struct TableCut {
  unsigned heads;
  unsigned subspaces;

  __host__ __device__ static TableCut of(const PqSelect& op) {
    const auto centroids = static_cast<unsigned>(op.pq.centroids());
    const auto subspaces = static_cast<unsigned>(op.pq.subspaces);
    const auto group = static_cast<unsigned>(op.common.shape.group());
    const unsigned of_head = subspaces * centroids;
    if (of_head > table_floats) return {1, table_floats / centroids};
    const unsigned heads = table_floats / of_head;
    return {heads < group ? heads : group, subspaces};
  }
  [[nodiscard]] __host__ __device__ std::size_t bytes(std::size_t centroids) const {
    return sizeof(float) * heads * subspaces * centroids;
  }
};

/// A KV head's part of the op.
struct PqHead {
  const PqSelect& op;
  unsigned head;
  float scale;
  float* tables;  // shared: [heads, subspaces, centroids] of a cut

  [[nodiscard]] __device__ unsigned dims() const {
    return static_cast<unsigned>(op.common.shape.head_dim / op.pq.subspaces);
  }

  /// Fills tables for query heads from `first_query` on and sub-spaces from `first` on. A thread
  /// reads a centroid once for some of the heads.
  __device__ void fill_tables(unsigned first_query, unsigned queries, unsigned first,
                              unsigned subspaces) const {
    const auto centroids = static_cast<unsigned>(op.pq.centroids());
    const unsigned pairs = subspaces * centroids;
    const unsigned parts = (queries + heads_of_thread - 1) / heads_of_thread;
    for (unsigned i = threadIdx.x; i < parts * pairs; i += threads) {
      const unsigned q = i / pairs * heads_of_thread;
      const unsigned used = queries - q < heads_of_thread ? queries - q : heads_of_thread;
      const unsigned subspace = first + i % pairs / centroids;
      float products[heads_of_thread];
      multiply(first_query + q, used, subspace, i % centroids, products);
      for (unsigned k = 0; k < used; ++k) tables[(q + k) * pairs + i % pairs] = products[k];
    }
  }

  /// The products of a centroid with query heads from `first_query` on.
  __device__ void multiply(unsigned first_query, unsigned used, unsigned subspace,
                           unsigned centroid, float* products) const {
    const std::size_t head_dim = op.common.shape.head_dim;
    const float* queries[heads_of_thread];
    for (unsigned k = 0; k < heads_of_thread; ++k) {
      // Once more the last one, whose product nobody reads.
      const std::size_t query = first_query + (k < used ? k : used - 1);
      queries[k] = op.common.query + (head * op.common.shape.group() + query) * head_dim +
                   std::size_t{subspace} * dims();
      products[k] = 0;
    }
    const float* const entry =
        reinterpret_cast<const float*>(op.index.fixed) +
        ((head * op.pq.subspaces + subspace) * op.pq.centroids() + centroid) * dims();
    const auto add = [&](unsigned d, float element) {
      for (unsigned k = 0; k < heads_of_thread; ++k) {
        products[k] += queries[k][d] * scale * element;
      }
    };
    unsigned d = 0;
    if (dims() % 4 == 0 && reinterpret_cast<std::uintptr_t>(entry) % sizeof(float4) == 0) {
#pragma unroll 4
      for (; d < dims(); d += 4) {
        const float4 elements = *reinterpret_cast<const float4*>(entry + d);
        add(d, elements.x);
        add(d + 1, elements.y);
        add(d + 2, elements.z);
        add(d + 3, elements.w);
      }
    }
    for (; d < dims(); ++d) add(d, entry[d]);
  }

  /// Sets logits of the block's candidates, or adds to them where sub-spaces came before.
  __device__ void scan_codes(unsigned first_query, unsigned queries, unsigned first,
                             unsigned subspaces) const {
    const SelectCommon& common = op.common;
    const auto centroids = static_cast<unsigned>(op.pq.centroids());
    const std::size_t chunk_tokens = op.index.chunk_tokens;
    const std::size_t stride = logit_stride(common.candidates.size());
    const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * tile;
    const std::size_t end =
        common.candidates.size() - begin < tile ? common.candidates.size() : begin + tile;
    for (std::size_t i = begin + threadIdx.x; i < end; i += threads) {
      const std::size_t token = common.candidates.begin + i - op.index.first_token;
      const std::byte* const codes = op.index.chunks[token / chunk_tokens] +
                                     (head * op.pq.subspaces + first) * chunk_tokens +
                                     token % chunk_tokens;
      for (unsigned q = 0; q < queries; ++q) {
        float& logit =
            common.scratch[(head * (common.shape.group() + 1) + first_query + q) * stride + i];
        float sum = first == 0 ? 0.0F : logit;
        for (unsigned j = 0; j < subspaces; ++j) {
          const auto code = static_cast<unsigned>(codes[j * chunk_tokens]);
          sum += tables[(q * subspaces + j) * centroids + code];
        }
        logit = sum;
      }
    }
  }
};

/// blockIdx: tile of candidates, KV head, call.
template <unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_pq_logits(const Calls<PqSelect, capacity> __grid_constant__ calls, float scale) {
  const PqSelect& op = calls.of_block();
  if (static_cast<std::size_t>(blockIdx.x) * tile >= op.common.candidates.size()) return;
  const PqHead head{op, blockIdx.y, scale, reinterpret_cast<float*>(dynamic_shared_memory)};
  const TableCut cut = TableCut::of(op);
  const auto group = static_cast<unsigned>(op.common.shape.group());
  const auto all_subspaces = static_cast<unsigned>(op.pq.subspaces);
  for (unsigned q = 0; q < group; q += cut.heads) {
    const unsigned queries = group - q < cut.heads ? group - q : cut.heads;
    for (unsigned j = 0; j < all_subspaces; j += cut.subspaces) {
      const unsigned subspaces =
          all_subspaces - j < cut.subspaces ? all_subspaces - j : cut.subspaces;
      __syncthreads();  // the tables before have been used
      head.fill_tables(q, queries, j, subspaces);
      __syncthreads();
      head.scan_codes(q, queries, j, subspaces);
    }
  }
}

template <unsigned capacity>
Status launch_logits(const Calls<PqSelect, capacity>& calls, const Launch& launch) {
  const std::size_t candidates =
      calls.largest([](const PqSelect& op) { return candidates_to_score(op.common); });
  if (candidates == 0) return {};
  const PqSelect& op = calls.each[0];
  const dim3 grid = calls.grid(blocks_for(candidates, tile, 0x7fffffffU),
                               static_cast<unsigned>(op.common.shape.kv_heads));
  const std::size_t shared = TableCut::of(op).bytes(op.pq.centroids());
  return launch_kernel(launch, {grid, threads, shared}, "pq_select", write_pq_logits<capacity>,
                       calls, op.common.shape.logit_scale());
}

}  // namespace

Status pq_select(std::span<const PqSelect> batch, const Launch& launch) {
  TERRACE_TRY(launch_calls(batch, [&](const auto& calls) { return launch_logits(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
