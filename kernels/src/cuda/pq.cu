// Product quantisation: codes of keys, and selection by look-up tables.
#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>

#include "device/block_scan.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned warps = threads / 32;
constexpr unsigned tile = 2048;             // candidates of a block
constexpr unsigned table_floats = 1 << 13;  // of look-up tables at once: 32 KiB
constexpr unsigned encode_blocks_max = 4096;

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

/// One KV head's part of the op.
struct PqHead {
  const PqSelect& op;
  unsigned head;
  float scale;
  float* tables;  // shared: [heads, subspaces, centroids] of a cut

  [[nodiscard]] __device__ unsigned dims() const {
    return static_cast<unsigned>(op.common.shape.head_dim / op.pq.subspaces);
  }

  /// Fills tables for query heads from `first_query` on and sub-spaces from `first` on.
  __device__ void fill_tables(unsigned first_query, unsigned queries, unsigned first,
                              unsigned subspaces) const {
    const auto centroids = static_cast<unsigned>(op.pq.centroids());
    const std::size_t head_dim = op.common.shape.head_dim;
    for (unsigned i = threadIdx.x; i < queries * subspaces * centroids; i += threads) {
      const unsigned centroid = i % centroids;
      const unsigned subspace = first + i / centroids % subspaces;
      const unsigned q = first_query + i / centroids / subspaces;
      const float* const query =
          op.common.query + (head * op.common.shape.group() + q) * head_dim + subspace * dims();
      const float* const entry =
          reinterpret_cast<const float*>(op.index.fixed) +
          ((head * op.pq.subspaces + subspace) * centroids + centroid) * dims();
      float sum = 0;
      for (unsigned d = 0; d < dims(); ++d) sum += query[d] * scale * entry[d];
      tables[i] = sum;
    }
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

/// blockIdx: tile of candidates, KV head.
__global__ void __launch_bounds__(threads) write_pq_logits(PqSelect op, float scale) {
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

/// Finds the centroid nearest to a warp's sub-key in shared memory. Every lane gets it.
__device__ unsigned nearest_centroid(const float* key, const float* codebook, unsigned centroids,
                                     unsigned dims) {
  const unsigned lane = threadIdx.x % 32;
  unsigned best = lane;
  float best_distance = INFINITY;
  for (unsigned c = lane; c < centroids; c += 32) {
    float distance = 0;  // |c|^2 - 2 x.c
    for (unsigned i = 0; i < dims; ++i) {
      const float x = codebook[c * dims + i];
      distance += x * (x - 2 * key[i]);
    }
    if (distance < best_distance) {
      best_distance = distance;
      best = c;
    }
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other_distance = __shfl_xor_sync(all_lanes, best_distance, mask);
    const unsigned other = __shfl_xor_sync(all_lanes, best, mask);
    const bool better =
        other_distance < best_distance || (other_distance == best_distance && other < best);
    if (better) {
      best_distance = other_distance;
      best = other;
    }
  }
  return best;
}

/// One token, KV head and sub-space a warp.
template <typename Elements>
__global__ void __launch_bounds__(threads) encode(PqEncode op) {
  const auto subspaces = static_cast<unsigned>(op.pq.subspaces);
  const auto centroids = static_cast<unsigned>(op.pq.centroids());
  const auto dims = static_cast<unsigned>(op.shape.head_dim) / subspaces;
  const auto parts = static_cast<unsigned>(op.shape.kv_heads) * subspaces;
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  float* const key = reinterpret_cast<float*>(dynamic_shared_memory) + warp * dims;
  const std::size_t work = op.tokens.size() * parts;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * warps + warp; i < work;
       i += static_cast<std::size_t>(gridDim.x) * warps) {
    const auto part = static_cast<unsigned>(i % parts);
    const std::size_t position = op.tokens.begin + i / parts;
    const std::byte* const row =
        row_place(op.shape, op.rows, part / subspaces, static_cast<unsigned>(position)) +
        part % subspaces * dims * Elements::bytes;
    bool finite = true;
    for (unsigned d = lane; d < dims; d += 32) {
      key[d] = Elements::load(row + d * Elements::bytes);
      finite = finite && key[d] - key[d] == 0;
    }
    __syncwarp();
    const float* const codebook = reinterpret_cast<const float*>(op.index.fixed) +
                                  static_cast<std::size_t>(part) * centroids * dims;
    const unsigned nearest = nearest_centroid(key, codebook, centroids, dims);
    const bool all_finite = __all_sync(all_lanes, finite ? 1 : 0) != 0;
    if (lane == 0) {
      const std::size_t token = position - op.index.first_token;
      std::byte* const chunk = op.index.chunks[token / op.index.chunk_tokens];
      chunk[part * op.index.chunk_tokens + token % op.index.chunk_tokens] =
          static_cast<std::byte>(all_finite ? nearest : 0);
    }
    __syncwarp();  // the key has been read
  }
}

template <typename Elements>
Status launch_encode(const PqEncode& op, const Launch& launch) {
  const std::size_t work = op.tokens.size() * op.shape.kv_heads * op.pq.subspaces;
  const std::size_t shared = warps * sizeof(float) * (op.shape.head_dim / op.pq.subspaces);
  return launch_kernel(launch, {blocks_for(work, warps, encode_blocks_max), threads, shared},
                       "pq_encode", encode<Elements>, op);
}

}  // namespace

Status pq_encode(const PqEncode& op, const Launch& launch) {
  if (op.tokens.empty()) return {};
  switch (op.shape.dtype) {
    case Dtype::f32:
      return launch_encode<F32Elements>(op, launch);
    case Dtype::f16:
      return launch_encode<F16Elements>(op, launch);
    case Dtype::bf16:
      break;
  }
  return launch_encode<Bf16Elements>(op, launch);
}

Status pq_select(const PqSelect& op, const Launch& launch) {
  if (!op.common.candidates.empty() && op.common.count.mean > 0) {
    const dim3 grid(blocks_for(op.common.candidates.size(), tile, 0x7fffffffU),
                    static_cast<unsigned>(op.common.shape.kv_heads));
    const std::size_t shared = TableCut::of(op).bytes(op.pq.centroids());
    TERRACE_TRY(launch_kernel(launch, {grid, threads, shared}, "pq_select", write_pq_logits, op,
                              logit_scale(op.common.shape)));
  }
  return choose_largest(op.common, launch);
}

}  // namespace terrace::kernels::cuda
