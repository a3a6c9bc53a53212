// A second stage of selections: proposed candidates are scored by codes of the rests of their keys.
#include <cuda_runtime.h>

#include <cmath>

#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/launch_kernel.cuh"
#include "device/rotated_query.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/refine.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;  // of a block, each with one candidate

/// A query head's part of the op.
struct RefinedQuery {
  const RefineSelect& op;
  unsigned query_head;
  float scale;
  RotatedQueries rotated;

  [[nodiscard]] __device__ unsigned dims() const {
    return static_cast<unsigned>(op.common.shape.head_dim);
  }
  [[nodiscard]] __device__ const float* query() const {
    return op.common.query + static_cast<std::size_t>(query_head) * dims();
  }
  [[nodiscard]] __device__ std::size_t head() const { return query_head / op.common.shape.group(); }

  /// The logit of a candidate.
  [[nodiscard]] __device__ float logit(std::size_t position, float unit) const {
    const std::size_t token = position - op.index.first_token;
    const std::size_t in_chunk = token % op.index.chunk_tokens;
    const std::byte* const chunk = op.index.chunks[token / op.index.chunk_tokens];
    const std::byte* const codes =
        chunk + op.codes.chunk_begin + op.codes.vector_bytes(op.common.shape);
    const std::size_t place = head() * op.index.chunk_tokens + in_chunk;
    const std::size_t factor_bytes =
        op.common.shape.kv_heads * op.index.chunk_tokens * sizeof(std::uint16_t);
    const float factor = bf16_to_f32(reinterpret_cast<const std::uint16_t*>(codes)[place]);
    const std::size_t code_bytes = op.codes.code_bytes(op.common.shape);
    const float product = product_with(codes + factor_bytes + place * code_bytes, code_bytes);
    return factor * (unit * scale * product) + coarse(chunk, in_chunk);
  }

  /// Whole numbers, so that the sum is exact in any order.
  [[nodiscard]] __device__ float product_with(const std::byte* code, std::size_t bytes) const {
    const auto bits = static_cast<unsigned>(op.codes.bits);
    const unsigned top = (1U << bits) - 1;
    float sum = 0;
    for (unsigned byte = 0; byte < bytes; ++byte) {
      auto word = static_cast<unsigned>(code[byte]);
      for (std::size_t dim = byte; dim < dims(); dim += bytes) {
        sum += rotated.numbers[dim] *
               static_cast<float>(2 * static_cast<int>(word & top) - static_cast<int>(top));
        word >>= bits;
      }
    }
    return sum;
  }

  /// The logit that the index's own codes give, or the chunk's vector.
  [[nodiscard]] __device__ float coarse(const std::byte* chunk, std::size_t in_chunk) const {
    const PqShape& pq = op.codes.pq;
    float sum = 0;
    if (pq.subspaces == 0) {
      const float* const vector =
          reinterpret_cast<const float*>(chunk + op.codes.chunk_begin) + head() * dims();
      for (unsigned i = 0; i < dims(); ++i) sum += query()[i] * scale * vector[i];
    }
    for (std::size_t j = 0; j < pq.subspaces; ++j) {
      const std::size_t width = dims() / pq.subspaces;
      const std::size_t plane = head() * pq.subspaces + j;
      const std::size_t code =
          static_cast<std::size_t>(chunk[plane * op.index.chunk_tokens + in_chunk]);
      const float* const centroid =
          reinterpret_cast<const float*>(op.index.fixed) + (plane * pq.centroids() + code) * width;
      float product = 0;
      for (std::size_t i = 0; i < width; ++i) {
        product += query()[j * width + i] * scale * centroid[i];
      }
      sum += product;
    }
    return sum;
  }
};

/// blockIdx: tile of proposed candidates, query head, call. After the last candidate logits are
/// NaN, which ranks last.
template <unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_refined_logits(const Calls<RefineSelect, capacity> __grid_constant__ calls, float scale) {
  __shared__ float unit;
  const RefineSelect& op = calls.of_block();
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * threads;
  if (begin >= op.proposed_stride) return;
  const RefinedQuery query{op,
                           blockIdx.y,
                           scale,
                           {reinterpret_cast<float*>(dynamic_shared_memory),
                            static_cast<unsigned>(op.common.shape.head_dim)}};
  query.rotated.rotate<threads>(query.query());
  query.rotated.round(refine_query_max, &unit);
  const std::size_t i = begin + threadIdx.x;
  if (i >= op.proposed_stride) return;
  const std::size_t group = op.common.shape.group();
  const std::size_t row = query.head() * (group + 1) + blockIdx.y % group;
  float& logit = op.common.scratch[row * logit_stride(op.proposed_stride) + i];
  const std::uint32_t* const proposed = op.proposed + query.head() * op.proposed_stride;
  logit = i < op.proposed_count[query.head()] ? query.logit(proposed[i], unit) : NAN;
}

template <unsigned capacity>
Status launch_logits(const Calls<RefineSelect, capacity>& calls, const Launch& launch) {
  const std::size_t proposed = calls.largest([](const RefineSelect& op) {
    return candidates_to_score(op.common) == 0 ? 0 : op.proposed_stride;
  });
  if (proposed == 0) return {};
  const KvShape& shape = calls.each[0].common.shape;
  const dim3 grid = calls.grid(blocks_for(proposed, threads, 0x7fffffffU),
                               static_cast<unsigned>(shape.query_heads));
  return launch_kernel(launch, {grid, threads, shape.head_dim * sizeof(float)}, "refine_select",
                       write_refined_logits<capacity>, calls, shape.logit_scale());
}

}  // namespace

Status refine_select(std::span<const RefineSelect> batch, const Launch& launch) {
  TERRACE_TRY(launch_calls(batch, [&](const auto& calls) { return launch_logits(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
