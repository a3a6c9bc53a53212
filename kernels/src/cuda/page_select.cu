// Selection of whole pages: logits by dot products with the vectors of an index.
#include <cuda_runtime.h>

#include "device/calls.cuh"
#include "device/dot_rows.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "selection.hpp"
#include "terrace/kernels/cuda/ops.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned tile = 128;  // pages of a block
constexpr unsigned heads = 4;   // query heads of a block; 4 * 2048 floats are 32 KiB

/// A call, and what pages it has.
struct PageCall {
  PageSelect op;
  CandidatePages pages;
};

/// Copies `count` queries times `scale` to shared memory as share_queries does, but each twice, its
/// positive elements first, then its negative ones: against maxima and minima of keys the largest
/// product is one dot product of twice the length.
template <typename Elements>
__device__ void share_split_queries(const float* query, unsigned count, unsigned head_dim,
                                    float scale, float* shared) {
  const unsigned padded = padded_dims<Elements>(2 * head_dim);
  for (unsigned i = threadIdx.x; i < heads * padded; i += threads) {
    const unsigned q = i / padded;
    const unsigned dim = i % padded;
    if (q >= count || dim >= 2 * head_dim) {
      shared[i] = 0;
    } else {
      const float x = query[q * head_dim + dim % head_dim] * scale;
      const bool other_sign = dim < head_dim ? x < 0 : x > 0;
      shared[i] = other_sign ? 0.0F : x;  // NaN stays
    }
  }
}

/// blockIdx: tile of pages, KV head, call and which query heads of the group.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_page_logits(const Calls<PageCall, capacity> __grid_constant__ calls, float scale) {
  const auto& [op, pages] = calls.of_block();
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * tile;
  if (begin >= pages.count) return;
  const KvShape& shape = op.common.shape;
  const auto head_dim = static_cast<unsigned>(shape.head_dim);
  const auto dims = static_cast<unsigned>(op.pages.dims(shape));
  const auto group = static_cast<unsigned>(shape.group());
  const unsigned head = blockIdx.y;
  const unsigned first_query = calls.part() * heads;
  const unsigned used = group - first_query < heads ? group - first_query : heads;
  const float* const query =
      op.common.query + (static_cast<std::size_t>(head) * group + first_query) * head_dim;
  auto* const queries = reinterpret_cast<float*>(dynamic_shared_memory);
  if (op.pages.bounds) {
    share_split_queries<Elements>(query, used, head_dim, scale, queries);
  } else {
    share_queries<Elements>(query, used, heads, head_dim, scale, queries);
  }
  const std::size_t chunk_pages = op.index.chunk_tokens / op.pages.page_tokens;
  const std::size_t left = pages.count - begin;
  const auto vector = [&](unsigned i) -> const std::byte* {
    const std::size_t page = pages.first + begin + i;
    const std::size_t place = head * chunk_pages + page % chunk_pages;
    return op.index.chunks[page / chunk_pages] + place * dims * Elements::bytes;
  };
  const std::size_t stride = logit_stride(pages.count);
  float* const logits = op.common.scratch +
                        (static_cast<std::size_t>(head) * (group + 1) + first_query) * stride +
                        begin;
  const unsigned count = left < tile ? static_cast<unsigned>(left) : tile;
  const bool whole = sync_and_find_whole<Elements>(dims, count, vector);
  dot_rows<Elements, heads>(queries, dims, count, whole, vector,
                            [&](unsigned q, unsigned i, float dot) {
                              if (q < used) logits[q * stride + i] = dot;
                            });
}

template <typename Elements, unsigned capacity>
Status launch_logits(const Calls<PageCall, capacity>& calls, std::size_t pages,
                     const Launch& launch) {
  const PageSelect& op = calls.each[0].op;
  const KvShape& shape = op.common.shape;
  const dim3 grid =
      calls.grid(blocks_for(pages, tile, 0x7fffffffU), static_cast<unsigned>(shape.kv_heads),
                 static_cast<unsigned>((shape.group() + heads - 1) / heads));
  const std::size_t shared =
      heads * sizeof(float) * padded_dims<Elements>(static_cast<unsigned>(op.pages.dims(shape)));
  return launch_kernel(launch, {grid, threads, shared}, "page_select",
                       write_page_logits<Elements, capacity>, calls, shape.logit_scale());
}

template <unsigned capacity>
Status launch_logits_of(const Calls<PageCall, capacity>& calls, const Launch& launch) {
  const std::size_t pages = calls.largest([](const PageCall& call) {
    return candidates_to_score(call.op.common) == 0 ? 0 : call.pages.count;
  });
  if (pages == 0) return {};
  return with_elements(calls.each[0].op.common.shape.dtype, [&](auto elements) {
    return launch_logits<decltype(elements)>(calls, pages, launch);
  });
}

}  // namespace

Status page_select(std::span<const PageSelect> batch, const Launch& launch) {
  const auto call_of = [](const PageSelect& op) { return PageCall{op, CandidatePages::of(op)}; };
  TERRACE_TRY(launch_calls(batch, call_of,
                           [&](const auto& calls) { return launch_logits_of(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
