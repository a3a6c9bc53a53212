// Attention over a tile of rows: see terrace/kernels/attention.hpp.
// A part of the work is up to 128 query heads of one KV head, of as many tokens as necessary. It
// passes over the tile in pieces of 64 rows (tile_pass-inl.hpp) and goes on with the softmax from
// piece to piece, and from tile to tile: cuts between pieces change no bits.
#include <algorithm>
#include <array>
#include <limits>
#include <numbers>

#include "host/attention_entries.hpp"
#include "host/tile_part.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/kernels/attention.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/tile_attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/rows_ahead-inl.hpp"
#include "host/tile_pass-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Lays the queries of a part out in blocks: [padded / 4, heads of the block, 4], zeros after the
/// last dimension.
template <std::size_t block>
HWY_NOINLINE void lay_out_queries(const TilePart& part, std::size_t padded, float* queries) {
  const QuadTag tag;
  const std::size_t dims = part.op.shape.head_dim;
  const Quad scale = hn::Set(tag, part.op.scale * std::numbers::log2e_v<float>);
  for_blocks<block>(0, part.count, [&]<std::size_t heads>(std::size_t first) HWY_ATTR {
    for (std::size_t h = 0; h < heads; ++h) {
      const float* query = part.query(first + h);
      float* to = queries + first * padded + h * block_dims;
      for (std::size_t dim = 0; dim < padded; dim += block_dims) {
        alignas(16) float rest[block_dims] = {};
        const bool whole = dim + block_dims <= dims;
        if (!whole && dim < dims) std::copy(query + dim, query + dims, rest);
        const Quad four = whole ? hn::LoadU(tag, query + dim) : hn::Load(tag, rest);
        hn::Store(hn::Mul(four, scale), tag, to + dim * heads);
      }
    }
  });
}

HWY_INLINE void load_states(const TilePart& part, PartMemory& memory) {
  const std::size_t dims = part.op.shape.head_dim;
  for (std::size_t h = 0; h < part.count; ++h) {
    memory.states[h] = part.state(h);
    memory.maxima[h] = memory.states[h][dims];
    memory.sums[h] = memory.states[h][dims + 1];
    memory.seen_in_tile[h] = part.op.rows_seen(part.token(h));
  }
  std::fill_n(memory.maxima + part.count, 4, 0.0F);
  std::fill_n(memory.sums + part.count, 4, 0.0F);
}

HWY_INLINE void store_states(const TilePart& part, const PartMemory& memory) {
  const std::size_t dims = part.op.shape.head_dim;
  for (std::size_t h = 0; h < part.count; ++h) {
    memory.states[h][dims] = memory.maxima[h];
    memory.states[h][dims + 1] = memory.sums[h];
  }
}

/// Sets how many of a piece's rows, which begins with row `begin`, each head sees.
HWY_INLINE void see_piece(std::size_t begin, std::size_t heads, PartMemory& memory) {
  for (std::size_t h = 0; h < heads; ++h) {
    memory.seen[h] = HWY_MIN(HWY_MAX(memory.seen_in_tile[h], begin) - begin, piece_rows);
  }
}

/// Takes a part's heads over the tile. Its first rows have not been prefetched.
template <typename Elements, bool in_place>
HWY_INLINE void attend_pieces(const TilePart& part, PartMemory& memory) {
  const KvShape& shape = part.op.shape;
  const std::size_t end = part.rows_seen();
  std::array<const std::byte*, 2 * piece_rows> rows;  // of a piece, and of the next one
  const std::span behind(rows.begin() + piece_rows, piece_rows);
  gather_rows(part.op, part.kv_head, 0, rows);
  for (std::size_t i = 0; i < piece_rows; ++i) prefetch(rows[i], shape.row_bytes());
  for (std::size_t begin = 0; begin < end; begin += piece_rows) {
    const std::size_t next = HWY_MIN(begin + piece_rows, end);
    RunsAhead ahead(behind.data(), HWY_MIN(end - next, piece_rows), shape.row_bytes());
    see_piece(begin, part.count, memory);
    pass_over_rows<Elements, in_place>({.rows = rows.data(),
                                        .count = next - begin,
                                        .dims = shape.head_dim,
                                        .first = 0,
                                        .end = part.count,
                                        .ahead = ahead,
                                        .memory = memory});
    std::ranges::copy(behind, rows.begin());
    gather_rows(part.op, part.kv_head, begin + 2 * piece_rows, behind);
  }
}

template <typename Elements>
HWY_INLINE void attend_part_of(const TilePart& part, PartMemory& memory) {
  const std::size_t dims = part.op.shape.head_dim;
  const std::size_t padded = align_up(dims, lanes);
  load_states(part, memory);
  if (part.count > few_heads_max) {
    lay_out_queries<product_heads>(part, padded, memory.queries);
    attend_pieces<Elements, false>(part, memory);
  } else {
    lay_out_queries<heads_in_place>(part, padded, memory.queries);
    for (std::size_t h = 0; h < part.count; ++h) {
      float* const sums = memory.sums_in_place(h, padded);
      std::fill(std::copy_n(memory.states[h], dims, sums), sums + padded, 0.0F);
    }
    attend_pieces<Elements, true>(part, memory);
    for (std::size_t h = 0; h < part.count; ++h) {
      std::copy_n(memory.sums_in_place(h, padded), dims, memory.states[h]);
    }
  }
  store_states(part, memory);
}

void attend_part_on_target(const TilePart& part) {
  PartMemory memory;
  switch (part.op.shape.dtype) {
    case Dtype::f32:
      return attend_part_of<F32Elements>(part, memory);
    case Dtype::f16:
      return attend_part_of<F16Elements>(part, memory);
    case Dtype::bf16:
      return attend_part_of<Bf16Elements>(part, memory);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(attend_part_on_target);

void begin_states(const TilePart& part) noexcept {
  const std::size_t dims = part.op.shape.head_dim;
  for (std::size_t h = 0; h < part.count; ++h) {
    float* const state = part.state(h);
    std::fill_n(state, dims, 0.0F);
    state[dims] = -std::numeric_limits<float>::infinity();
    state[dims + 1] = 0;
  }
}

void write_outputs(const TilePart& part) noexcept {
  const std::size_t dims = part.op.shape.head_dim;
  for (std::size_t h = 0; h < part.count; ++h) {
    const float* const state = part.state(h);
    float* const output = part.output(h);
    const float sum = state[dims + 1];
    for (std::size_t i = 0; i < dims; ++i) output[i] = sum == 0 ? 0.0F : state[i] / sum;
  }
}

/// Returns how many heads a part has. On one thread a part has the most heads, because each part
/// reads the rows once. On several threads each gets several parts, because heads that see fewer
/// rows take less time, but a part has enough heads that laying rows out does not dominate.
std::size_t heads_of_part(const TileAttention& op, std::size_t threads) noexcept {
  constexpr std::size_t parts_of_thread = 4;
  constexpr std::size_t heads_min = 64;
  const std::size_t most =
      std::min(part_heads_max, part_query_floats / align_up(op.shape.head_dim, lanes_max));
  if (threads == 1) return most;
  const std::size_t parts = divide_up(parts_of_thread * threads, op.shape.kv_heads);
  const std::size_t heads = align_up(divide_up(op.tokens * op.shape.group(), parts), 8);
  return std::clamp(heads, std::min(heads_min, most), most);
}

}  // namespace

void tile_attention(const TileAttention& op, Parallel& threads) {
  const std::size_t heads = op.tokens * op.shape.group();
  const std::size_t kv_heads = op.shape.kv_heads;
  const std::size_t count = heads_of_part(op, threads.concurrency());
  const std::size_t parts = divide_up(heads, count);
  // The last heads see most: those that take longest begin first.
  threads.for_each(kv_heads * parts, [&](std::size_t i) {
    const std::size_t begin = (parts - 1 - i / kv_heads) * count;
    const TilePart part{op, i % kv_heads, begin, std::min(count, heads - begin)};
    if (op.first) begin_states(part);
    if (part.rows_seen() > 0) HWY_DYNAMIC_DISPATCH(attend_part_on_target)(part);
    if (op.output != nullptr) write_outputs(part);
  });
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
