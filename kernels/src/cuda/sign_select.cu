// Selections by the means of groups and the signs of the rests of keys: see
// terrace/kernels/signs.hpp.
//
// A block has some pages of a query head: its threads make the logits of the pages' means, then
// each those of some tokens. Products with signs are of whole numbers, exact in any order.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "device/rotated_query.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/signs.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned pages_of_block = 4;

/// The pages that have candidates: numbers, from the index's first on.
__host__ __device__ TokenRange pages_of(const SignSelect& op) {
  const std::size_t size = op.signs.groups.page_tokens;
  const TokenRange& candidates = op.common.candidates;
  return {(candidates.begin - op.index.first_token) / size,
          (candidates.end - op.index.first_token + size - 1) / size};
}

/// One query head's part of the op.
struct SignQuery {
  const SignSelect& op;
  unsigned query_head;
  float scale;
  RotatedQuery rotated;
  float* bases;  ///< shared: [groups of a page]

  [[nodiscard]] __device__ std::size_t head() const { return query_head / op.common.shape.group(); }
  [[nodiscard]] __device__ const float* query() const {
    return op.common.query + static_cast<std::size_t>(query_head) * op.common.shape.head_dim;
  }
  [[nodiscard]] __device__ const std::byte* chunk_of(std::size_t page) const {
    return op.index.chunks[page / pages_of_chunk()];
  }
  [[nodiscard]] __device__ std::size_t pages_of_chunk() const {
    return op.index.chunk_tokens / op.signs.groups.page_tokens;
  }

  /// Makes the logits of a page's means; of one that is not full no token has a group.
  template <typename Elements>
  __device__ void write_bases(std::size_t page) const {
    const GroupShape& groups = op.signs.groups;
    if ((page + 1) * groups.page_tokens > op.index.token_count) return;
    const std::byte* const means =
        chunk_of(page) + groups.means_at(op.common.shape, op.index.chunk_tokens, head()) +
        page % pages_of_chunk() * groups.groups * op.common.shape.row_bytes();
    for (unsigned group = threadIdx.x / 32; group < groups.groups; group += threads / 32) {
      const std::byte* const mean = means + group * op.common.shape.row_bytes();
      float product = 0;
      for (unsigned i = threadIdx.x % 32; i < rotated.dims; i += 32) {
        product += query()[i] * scale * Elements::load(mean + i * Elements::bytes);
      }
      product = warp_sum(product);
      if (threadIdx.x % 32 == 0) bases[group] = product;
    }
  }

  /// The logit of a token of a page, whose bases are there.
  [[nodiscard]] __device__ float logit(std::size_t page, std::size_t token, float unit) const {
    const GroupShape& groups = op.signs.groups;
    const KvShape& shape = op.common.shape;
    const std::size_t chunk_tokens = op.index.chunk_tokens;
    const std::byte* const chunk = chunk_of(page);
    const std::size_t first = page % pages_of_chunk() * groups.page_tokens;
    const std::size_t half = groups.page_tokens / 2;
    const auto label =
        static_cast<unsigned>(chunk[groups.labels_at(shape, chunk_tokens, head()) + first + token]);
    const auto* const factors =
        reinterpret_cast<const std::uint16_t*>(chunk + op.signs.factors_at(chunk_tokens, head()));
    const std::byte* const signs = chunk + op.signs.signs_at(shape, chunk_tokens, head()) +
                                   first / 2 * SignShape::quads(shape) + token % half;
    float sum = 0;
    for (unsigned quad = 0; quad < SignShape::quads(shape); ++quad) {
      const unsigned bits = static_cast<unsigned>(signs[quad * half]) >> (token < half ? 0 : 4);
      for (unsigned i = 0; i < 4 && 4 * quad + i < rotated.dims; ++i) {
        const float number = rotated.numbers[4 * quad + i];
        sum += (bits >> i & 1U) != 0 ? number : -number;
      }
    }
    const float base = label == GroupShape::none ? 0.0F : bases[label];
    return base + bf16_to_f32(factors[first + token]) * (unit * scale * sum);
  }
};

/// blockIdx: run of pages, query head, call.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_sign_logits(const Calls<SignSelect, capacity> __grid_constant__ calls, float scale) {
  __shared__ float shared[threads / 32];
  __shared__ float bases[GroupShape::none];
  const SignSelect& op = calls.of_block();
  const TokenRange pages = pages_of(op);
  const std::size_t begin = pages.begin + static_cast<std::size_t>(blockIdx.x) * pages_of_block;
  if (candidates_to_score(op.common) == 0 || begin >= pages.end) return;
  const SignQuery query{op,
                        blockIdx.y,
                        scale,
                        {reinterpret_cast<float*>(dynamic_shared_memory),
                         static_cast<unsigned>(op.common.shape.head_dim)},
                        bases};
  query.rotated.rotate<threads>(query.query());
  const float unit = query.rotated.round<threads>(sign_query_max, shared);
  const TokenRange& candidates = op.common.candidates;
  const std::size_t size = op.signs.groups.page_tokens;
  const std::size_t group = op.common.shape.group();
  const std::size_t row = query.head() * (group + 1) + blockIdx.y % group;
  float* const logits = op.common.scratch + row * logit_stride(candidates.size());
  for (std::size_t page = begin; page < begin + pages_of_block && page < pages.end; ++page) {
    query.write_bases<Elements>(page);
    __syncthreads();
    for (std::size_t token = threadIdx.x; token < size; token += threads) {
      const std::size_t position = op.index.first_token + page * size + token;
      if (position < candidates.begin || position >= candidates.end) continue;
      logits[position - candidates.begin] = query.logit(page, token, unit);
    }
    __syncthreads();
  }
}

template <typename Elements, unsigned capacity>
Status launch_logits(const Calls<SignSelect, capacity>& calls, const Launch& launch) {
  const std::size_t pages = calls.largest([](const SignSelect& op) {
    return candidates_to_score(op.common) == 0 ? 0 : pages_of(op).size();
  });
  if (pages == 0) return {};
  const KvShape& shape = calls.each[0].common.shape;
  const dim3 grid = calls.grid(blocks_for(pages, pages_of_block, 0x7fffffffU),
                               static_cast<unsigned>(shape.query_heads));
  return launch_kernel(launch, {grid, threads, shape.head_dim * sizeof(float)}, "sign_select",
                       write_sign_logits<Elements, capacity>, calls, logit_scale(shape));
}

template <unsigned capacity>
Status launch_logits_of(const Calls<SignSelect, capacity>& calls, const Launch& launch) {
  return with_elements(calls.each[0].common.shape.dtype, [&](auto elements) {
    return launch_logits<decltype(elements)>(calls, launch);
  });
}

}  // namespace

Status sign_select(std::span<const SignSelect> batch, const Launch& launch) {
  TERRACE_TRY(
      launch_calls(batch, [&](const auto& calls) { return launch_logits_of(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
