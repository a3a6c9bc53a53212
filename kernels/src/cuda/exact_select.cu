// Selection by exact scores: logits by dot products with the keys of an index.
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
constexpr unsigned tile = 512;  // candidates of a block
constexpr unsigned heads = 4;   // query heads of a block; 4 * 1024 floats fit any head_dim

/// blockIdx: tile of candidates, KV head, call and which query heads of the group.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_exact_logits(const Calls<ExactSelect, capacity> __grid_constant__ calls, float scale) {
  const ExactSelect& op = calls.of_block();
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * tile;
  if (begin >= op.common.candidates.size()) return;
  const KvShape& shape = op.common.shape;
  const auto dims = static_cast<unsigned>(shape.head_dim);
  const auto group = static_cast<unsigned>(shape.group());
  const unsigned head = blockIdx.y;
  const unsigned first_query = calls.part() * heads;
  const unsigned used = group - first_query < heads ? group - first_query : heads;
  auto* const queries = reinterpret_cast<float*>(dynamic_shared_memory);
  share_queries<Elements>(
      op.common.query + (static_cast<std::size_t>(head) * group + first_query) * dims, used, heads,
      dims, scale, queries);
  const std::size_t left = op.common.candidates.size() - begin;
  const std::size_t first_token = op.common.candidates.begin + begin - op.index.first_token;
  const auto key = [&](unsigned i) -> const std::byte* {
    const std::size_t token = first_token + i;
    const std::size_t place = head * op.index.chunk_tokens + token % op.index.chunk_tokens;
    return op.index.chunks[token / op.index.chunk_tokens] + place * dims * Elements::bytes;
  };
  const std::size_t stride = logit_stride(op.common.candidates.size());
  float* const logits = op.common.scratch +
                        (static_cast<std::size_t>(head) * (group + 1) + first_query) * stride +
                        begin;
  const unsigned count = left < tile ? static_cast<unsigned>(left) : tile;
  const bool whole = sync_and_find_whole<Elements>(dims, count, key);
  dot_rows<Elements, heads>(queries, dims, count, whole, key,
                            [&](unsigned q, unsigned i, float dot) {
                              if (q < used) logits[q * stride + i] = dot;
                            });
}

template <typename Elements, unsigned capacity>
Status launch_logits(const Calls<ExactSelect, capacity>& calls, std::size_t candidates,
                     const Launch& launch) {
  const KvShape& shape = calls.each[0].common.shape;
  const dim3 grid =
      calls.grid(blocks_for(candidates, tile, 0x7fffffffU), static_cast<unsigned>(shape.kv_heads),
                 static_cast<unsigned>((shape.group() + heads - 1) / heads));
  const std::size_t shared =
      heads * sizeof(float) * padded_dims<Elements>(static_cast<unsigned>(shape.head_dim));
  return launch_kernel(launch, {grid, threads, shared}, "exact_select",
                       write_exact_logits<Elements, capacity>, calls, shape.logit_scale());
}

template <unsigned capacity>
Status launch_logits_of(const Calls<ExactSelect, capacity>& calls, const Launch& launch) {
  const std::size_t candidates =
      calls.largest([](const ExactSelect& op) { return candidates_to_score(op.common); });
  if (candidates == 0) return {};
  return with_elements(calls.each[0].common.shape.dtype, [&](auto elements) {
    return launch_logits<decltype(elements)>(calls, candidates, launch);
  });
}

}  // namespace

Status exact_select(std::span<const ExactSelect> batch, const Launch& launch) {
  TERRACE_TRY(
      launch_calls(batch, [&](const auto& calls) { return launch_logits_of(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
