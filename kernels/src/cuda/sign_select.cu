// Selections by the means of groups and the signs of the rests of keys: see
// terrace/kernels/signs.hpp.
//
// A block has some pages of a KV head, for up to four of its query heads, so that signs are read
// once for these: its warps make the logits of the pages' means, then each thread makes the logits
// of pairs of tokens, because their signs share bytes. Products with signs are of whole numbers of
// a byte, four at a time, exact in any order.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/choice.cuh"
#include "device/chunk_part.cuh"
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
constexpr unsigned pages_of_block = 8;

/// The pages that have candidates: numbers, from the index's first on.
TokenRange pages_of(const SignSelect& op) {
  const std::size_t size = op.signs.groups.page_tokens;
  const TokenRange& candidates = op.common.candidates;
  return {(candidates.begin - op.index.first_token) / size,
          (candidates.end - op.index.first_token + size - 1) / size};
}

/// A call, with what takes divisions: where the parts of its index lie, and its numbers of heads.
struct SignCall {
  SignSelect op;
  TokenRange pages;
  GroupParts groups;
  ChunkPart factors;
  ChunkPart signs;
  unsigned query_heads;  ///< of a KV head

  static SignCall of(const SignSelect& op) {
    const KvShape& shape = op.common.shape;
    const std::size_t chunk_tokens = op.index.chunk_tokens;
    using Head = std::size_t;
    return {
        op,
        candidates_to_score(op.common) == 0 ? TokenRange{} : pages_of(op),
        GroupParts::of(shape, op.signs.groups, chunk_tokens),
        ChunkPart::of([&](Head head) { return op.signs.factors_at(chunk_tokens, head); }),
        ChunkPart::of([&](Head head) { return op.signs.signs_at(shape, chunk_tokens, head); }),
        static_cast<unsigned>(shape.group()),
    };
  }
};

/// Four bytes that are 1 where the lowest bits are set.
__device__ int bytes_of(unsigned bits) {
  return static_cast<int>((bits & 0xfU) * 0x00204081U & 0x01010101U);
}

/// Query heads of a KV head, at most `heads`, as a block scores them.
template <unsigned heads>
struct SignQueries {
  const SignCall& call;
  unsigned head;   ///< the KV head
  unsigned first;  ///< of its query heads
  float scale;
  RotatedQueries rotated;
  // Shared.
  float* units;  ///< [heads], of the rotated numbers
  int* sums;     ///< [heads], of the rotated numbers
  int* quads;    ///< [quads, heads]: the rotated numbers, four a word
  float* bases;  ///< [pages, groups, heads]: logits of the means

  [[nodiscard]] __device__ const SignSelect& op() const { return call.op; }
  [[nodiscard]] __device__ unsigned quad_count() const {
    return static_cast<unsigned>(SignShape::quads(op().common.shape));
  }
  [[nodiscard]] __device__ unsigned page_tokens() const {
    return static_cast<unsigned>(op().signs.groups.page_tokens);
  }
  [[nodiscard]] __device__ unsigned groups() const {
    return static_cast<unsigned>(op().signs.groups.groups);
  }
  [[nodiscard]] __device__ const float* query() const {
    const std::size_t query_head = std::size_t{head} * call.query_heads + first;
    return op().common.query + query_head * rotated.dims;
  }
  [[nodiscard]] __device__ const std::byte* chunk_of(unsigned page) const {
    return op().index.chunks[page / call.groups.pages_of_chunk];
  }

  /// Rotates and rounds the queries. All threads of the block call it; a barrier must follow.
  __device__ void prepare() const {
    rotated.rotate<threads>(query());
    rotated.round(sign_query_max, units);
    pack();
    __syncthreads();
    if (threadIdx.x >= heads) return;
    int sum = 0;
    for (unsigned quad = 0; quad < quad_count(); ++quad) {
      sum = __dp4a(quads[quad * heads + threadIdx.x], 0x01010101, sum);
    }
    sums[threadIdx.x] = sum;
  }

  /// Packs the rotated numbers, which are whole and fit in a byte; the padding is 0.
  __device__ void pack() const {
    for (unsigned at = threadIdx.x; at < quad_count() * heads; at += threads) {
      const unsigned first_dim = at / heads * 4;
      const float* const own = rotated.numbers + at % heads * rotated.dims;
      unsigned word = 0;
      for (unsigned i = 0; at % heads < rotated.count && i < 4 && first_dim + i < rotated.dims;
           ++i) {
        const int number = static_cast<int>(own[first_dim + i]);
        word |= (static_cast<unsigned>(number) & 0xffU) << 8 * i;
      }
      quads[at] = static_cast<int>(word);
    }
  }

  /// Makes the logits of a page's mean; of a page that is not full no token has a group. A warp
  /// calls it together.
  template <typename Elements>
  __device__ void write_bases(unsigned page, unsigned group, float* out) const {
    if ((page + std::size_t{1}) * page_tokens() > op().index.token_count) return;
    const unsigned in_chunk = page % call.groups.pages_of_chunk * groups() + group;
    const std::byte* const mean =
        chunk_of(page) + call.groups.means.of_head(head) + in_chunk * op().common.shape.row_bytes();
    for (unsigned h = 0; h < rotated.count; ++h) {
      const float* const own = query() + h * rotated.dims;
      float product = 0;
      for (unsigned i = threadIdx.x % 32; i < rotated.dims; i += 32) {
        product += own[i] * scale * Elements::load(mean + i * Elements::bytes);
      }
      product = warp_sum(product);
      if (threadIdx.x % 32 == 0) out[h] = product;
    }
  }

  /// Calls write(token, h, logit) for a token of the first half of a page and for the token half a
  /// page later, for each head. The page's `base` must be computed.
  template <typename Write>
  __device__ void score_pair(unsigned page, unsigned token, const float* base, Write write) const {
    const std::byte* const chunk = chunk_of(page);
    const unsigned begin = page % call.groups.pages_of_chunk * page_tokens();
    const unsigned half = page_tokens() / 2;
    const std::byte* const labels = chunk + call.groups.labels.of_head(head) + begin;
    const auto* const factors =
        reinterpret_cast<const std::uint16_t*>(chunk + call.factors.of_head(head)) + begin;
    const std::byte* const signs =
        chunk + call.signs.of_head(head) + std::size_t{begin / 2} * quad_count() + token;
    int low[heads] = {};  // sums of the numbers whose sign is set
    int high[heads] = {};
#pragma unroll 8
    for (unsigned quad = 0; quad < quad_count(); ++quad) {
      const auto bits = static_cast<unsigned>(signs[quad * half]);
      const int low_bytes = bytes_of(bits);
      const int high_bytes = bytes_of(bits >> 4);
#pragma unroll
      for (unsigned h = 0; h < heads; ++h) {
        low[h] = __dp4a(quads[quad * heads + h], low_bytes, low[h]);
        high[h] = __dp4a(quads[quad * heads + h], high_bytes, high[h]);
      }
    }
    const auto write_logits = [&](unsigned at, const int(&set)[heads]) {
      const auto label = static_cast<unsigned>(labels[at]);
      const float factor = bf16_to_f32(factors[at]);
#pragma unroll
      for (unsigned h = 0; h < heads; ++h) {
        if (h >= rotated.count) return;
        const float of_group = label == GroupShape::none ? 0.0F : base[label * heads + h];
        const auto product = static_cast<float>(2 * set[h] - sums[h]);
        write(at, h, of_group + factor * (units[h] * scale * product));
      }
    };
    write_logits(token, low);
    write_logits(token + half, high);
  }
};

/// Shared memory of a block: the arrays of SignQueries, in its order.
template <unsigned heads>
std::size_t shared_bytes(const KvShape& shape, std::size_t groups) {
  return heads * (sizeof(float) * (shape.head_dim + 1 + pages_of_block * groups) +
                  sizeof(int) * (1 + SignShape::quads(shape)));
}

template <unsigned heads>
__device__ SignQueries<heads> queries_of(const SignCall& call, unsigned head, unsigned first,
                                         float scale) {
  const KvShape& shape = call.op.common.shape;
  const auto dims = static_cast<unsigned>(shape.head_dim);
  const unsigned left = call.query_heads - first;
  auto* const numbers = reinterpret_cast<float*>(dynamic_shared_memory);
  float* const units = numbers + heads * dims;
  int* const sums = reinterpret_cast<int*>(units + heads);
  int* const quads = sums + heads;
  return {call,
          head,
          first,
          scale,
          {numbers, dims, left < heads ? left : heads},
          units,
          sums,
          quads,
          reinterpret_cast<float*>(quads + heads * SignShape::quads(shape))};
}

/// blockIdx: run of pages, KV head, call and which query heads of the group.
template <typename Elements, unsigned heads, unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_sign_logits(const Calls<SignCall, capacity> __grid_constant__ calls, float scale) {
  const SignCall& call = calls.of_block();
  const SelectCommon& common = call.op.common;
  const auto pages = static_cast<unsigned>(call.pages.size());
  const unsigned first_page = blockIdx.x * pages_of_block;
  if (first_page >= pages) return;
  const unsigned count = pages - first_page < pages_of_block ? pages - first_page : pages_of_block;
  const unsigned begin = static_cast<unsigned>(call.pages.begin) + first_page;
  const SignQueries<heads> queries =
      queries_of<heads>(call, blockIdx.y, calls.part() * heads, scale);
  queries.prepare();
  const unsigned groups = queries.groups();
  for (unsigned i = threadIdx.x / 32; i < count * groups; i += threads / 32) {
    queries.template write_bases<Elements>(begin + i / groups, i % groups,
                                           queries.bases + i * heads);
  }
  __syncthreads();
  const TokenRange& candidates = common.candidates;
  const unsigned half = queries.page_tokens() / 2;
  const std::size_t stride = logit_stride(candidates.size());
  float* const logits =
      common.scratch + (blockIdx.y * (call.query_heads + std::size_t{1}) + queries.first) * stride;
  for (unsigned pair = threadIdx.x; pair < count * half; pair += threads) {
    const unsigned page = pair / half;
    const std::size_t first = call.op.index.first_token + (begin + page) * std::size_t{2 * half};
    queries.score_pair(begin + page, pair % half, queries.bases + page * groups * heads,
                       [&](unsigned token, unsigned h, float logit) {
                         const std::size_t position = first + token;
                         if (position < candidates.begin || position >= candidates.end) return;
                         logits[h * stride + position - candidates.begin] = logit;
                       });
  }
}

template <typename Elements, unsigned heads, unsigned capacity>
Status launch_heads(const Calls<SignCall, capacity>& calls, std::size_t pages,
                    const Launch& launch) {
  const KvShape& shape = calls.each[0].op.common.shape;
  const dim3 grid = calls.grid(blocks_for(pages, pages_of_block, 0x7fffffffU),
                               static_cast<unsigned>(shape.kv_heads),
                               static_cast<unsigned>((shape.group() + heads - 1) / heads));
  const std::size_t groups =
      calls.largest([](const SignCall& call) { return call.op.signs.groups.groups; });
  return launch_kernel(launch, {grid, threads, shared_bytes<heads>(shape, groups)}, "sign_select",
                       write_sign_logits<Elements, heads, capacity>, calls, shape.logit_scale());
}

template <typename Elements, unsigned capacity>
Status launch_logits(const Calls<SignCall, capacity>& calls, const Launch& launch) {
  const std::size_t pages = calls.largest([](const SignCall& call) { return call.pages.size(); });
  if (pages == 0) return {};
  const bool one = calls.each[0].query_heads == 1;
  return one ? launch_heads<Elements, 1>(calls, pages, launch)
             : launch_heads<Elements, 4>(calls, pages, launch);
}

template <unsigned capacity>
Status launch_logits_of(const Calls<SignCall, capacity>& calls, const Launch& launch) {
  return with_elements(calls.each[0].op.common.shape.dtype, [&](auto elements) {
    return launch_logits<decltype(elements)>(calls, launch);
  });
}

}  // namespace

Status sign_select(std::span<const SignSelect> batch, const Launch& launch) {
  TERRACE_TRY(launch_calls(batch, SignCall::of,
                           [&](const auto& calls) { return launch_logits_of(calls, launch); }));
  return choose_largest(batch, launch);
}

}  // namespace terrace::kernels::cuda
