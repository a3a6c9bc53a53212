// Selections by the means of groups and the signs of the rests of keys: see
// terrace/kernels/signs.hpp.
//
// A block has some pages of a query head: its warps make the logits of the pages' means, then each
// thread makes the logits of pairs of tokens, because their signs share bytes. Products with signs
// are of whole numbers of a byte, four at a time, exact in any order.
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

/// A query head's part of a call.
struct SignQuery {
  const SignCall& call;
  unsigned query_head;
  unsigned head;  ///< the KV head
  float scale;
  RotatedQuery rotated;
  int* quads;  ///< shared: the rotated numbers, four a word

  [[nodiscard]] __device__ const SignSelect& op() const { return call.op; }
  [[nodiscard]] __device__ unsigned quad_count() const {
    return static_cast<unsigned>(SignShape::quads(op().common.shape));
  }
  [[nodiscard]] __device__ unsigned page_tokens() const {
    return static_cast<unsigned>(op().signs.groups.page_tokens);
  }
  [[nodiscard]] __device__ const float* query() const {
    return op().common.query + static_cast<std::size_t>(query_head) * rotated.dims;
  }
  [[nodiscard]] __device__ const std::byte* chunk_of(unsigned page) const {
    return op().index.chunks[page / call.groups.pages_of_chunk];
  }

  /// Makes the logit of a page's mean; of a page that is not full no token has a group. A warp
  /// calls it together.
  template <typename Elements>
  __device__ void write_base(unsigned page, unsigned group, float& base) const {
    if ((page + std::size_t{1}) * page_tokens() > op().index.token_count) return;
    const auto groups = static_cast<unsigned>(op().signs.groups.groups);
    const unsigned in_chunk = page % call.groups.pages_of_chunk * groups + group;
    const std::byte* const mean =
        chunk_of(page) + call.groups.means.of_head(head) + in_chunk * op().common.shape.row_bytes();
    float product = 0;
    for (unsigned i = threadIdx.x % 32; i < rotated.dims; i += 32) {
      product += query()[i] * scale * Elements::load(mean + i * Elements::bytes);
    }
    product = warp_sum(product);
    if (threadIdx.x % 32 == 0) base = product;
  }

  /// Packs the rotated numbers, which are whole and fit in a byte; the padding is 0.
  __device__ void pack() const {
    for (unsigned quad = threadIdx.x; quad < quad_count(); quad += threads) {
      unsigned word = 0;
      for (unsigned i = 0; i < 4 && 4 * quad + i < rotated.dims; ++i) {
        const int number = static_cast<int>(rotated.numbers[4 * quad + i]);
        word |= (static_cast<unsigned>(number) & 0xffU) << 8 * i;
      }
      quads[quad] = static_cast<int>(word);
    }
  }

  [[nodiscard]] __device__ int sum_of_numbers() const {
    int sum = 0;
    for (unsigned quad = 0; quad < quad_count(); ++quad) {
      sum = __dp4a(quads[quad], 0x01010101, sum);
    }
    return sum;
  }

  /// Calls write(token, logit) for a token of the first half of a page and for the token half a
  /// page later. The page's `bases` must be computed; `unit` is the unit of the rotated numbers,
  /// `all` their sum.
  template <typename Write>
  __device__ void score_pair(unsigned page, unsigned token, const float* bases, float unit, int all,
                             Write write) const {
    const std::byte* const chunk = chunk_of(page);
    const unsigned first = page % call.groups.pages_of_chunk * page_tokens();
    const unsigned half = page_tokens() / 2;
    const std::byte* const labels = chunk + call.groups.labels.of_head(head) + first;
    const auto* const factors =
        reinterpret_cast<const std::uint16_t*>(chunk + call.factors.of_head(head)) + first;
    const std::byte* const signs =
        chunk + call.signs.of_head(head) + std::size_t{first / 2} * quad_count() + token;
    int low = 0;  // sums of the numbers whose sign is set
    int high = 0;
#pragma unroll 8
    for (unsigned quad = 0; quad < quad_count(); ++quad) {
      const auto bits = static_cast<unsigned>(signs[quad * half]);
      low = __dp4a(quads[quad], bytes_of(bits), low);
      high = __dp4a(quads[quad], bytes_of(bits >> 4), high);
    }
    const auto write_logit = [&](unsigned at, int set) {
      const auto label = static_cast<unsigned>(labels[at]);
      const float base = label == GroupShape::none ? 0.0F : bases[label];
      const auto product = static_cast<float>(2 * set - all);
      write(at, base + bf16_to_f32(factors[at]) * (unit * scale * product));
    };
    write_logit(token, low);
    write_logit(token + half, high);
  }
};

/// blockIdx: run of pages, query head, call.
template <typename Elements, unsigned capacity>
__global__ void __launch_bounds__(threads)
    write_sign_logits(const Calls<SignCall, capacity> __grid_constant__ calls, float scale) {
  __shared__ float shared[threads / 32];
  __shared__ float bases[pages_of_block][GroupShape::none];
  const SignCall& call = calls.of_block();
  const SignSelect& op = call.op;
  const auto pages = static_cast<unsigned>(call.pages.size());
  const unsigned first_page = blockIdx.x * pages_of_block;
  if (first_page >= pages) return;
  const unsigned count = pages - first_page < pages_of_block ? pages - first_page : pages_of_block;
  const unsigned begin = static_cast<unsigned>(call.pages.begin) + first_page;
  auto* const numbers = reinterpret_cast<float*>(dynamic_shared_memory);
  const auto dims = static_cast<unsigned>(op.common.shape.head_dim);
  const unsigned head = blockIdx.y / call.query_heads;
  const SignQuery query{call,  blockIdx.y,      head,
                        scale, {numbers, dims}, reinterpret_cast<int*>(numbers + dims)};
  query.rotated.rotate<threads>(query.query());
  const float unit = query.rotated.round<threads>(sign_query_max, shared);
  query.pack();
  const auto groups = static_cast<unsigned>(op.signs.groups.groups);
  for (unsigned i = threadIdx.x / 32; i < count * groups; i += threads / 32) {
    query.write_base<Elements>(begin + i / groups, i % groups, bases[i / groups][i % groups]);
  }
  __syncthreads();
  const int all = query.sum_of_numbers();
  const TokenRange& candidates = op.common.candidates;
  const unsigned half = query.page_tokens() / 2;
  const unsigned row = head * (call.query_heads + 1) + blockIdx.y % call.query_heads;
  float* const logits = op.common.scratch + row * logit_stride(candidates.size());
  for (unsigned pair = threadIdx.x; pair < count * half; pair += threads) {
    const unsigned page = pair / half;
    const std::size_t first = op.index.first_token + (begin + page) * std::size_t{2 * half};
    query.score_pair(begin + page, pair % half, bases[page], unit, all,
                     [&](unsigned token, float logit) {
                       const std::size_t position = first + token;
                       if (position < candidates.begin || position >= candidates.end) return;
                       logits[position - candidates.begin] = logit;
                     });
  }
}

template <typename Elements, unsigned capacity>
Status launch_logits(const Calls<SignCall, capacity>& calls, const Launch& launch) {
  const std::size_t pages = calls.largest([](const SignCall& call) { return call.pages.size(); });
  if (pages == 0) return {};
  const KvShape& shape = calls.each[0].op.common.shape;
  const dim3 grid = calls.grid(blocks_for(pages, pages_of_block, 0x7fffffffU),
                               static_cast<unsigned>(shape.query_heads));
  const std::size_t shared = shape.head_dim * sizeof(float) + SignShape::quads(shape) * sizeof(int);
  return launch_kernel(launch, {grid, threads, shared}, "sign_select",
                       write_sign_logits<Elements, capacity>, calls, shape.logit_scale());
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
