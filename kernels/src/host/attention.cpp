// Decode attention: see terrace/kernels/attention.hpp.
//
// One part of the work is a piece of one list for up to 8 query heads. Within it, a tile of 16
// rows passes three steps: logits, weights, and the weighted sum of values, whose registers hold
// a slab of dimensions at a time. Both passes over a tile prefetch the bytes that they will want of
// the next tile, so that memory is busy all the time, and scattered rows come as fast as it allows.
#include "terrace/kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/attention_entries.hpp"
#include "host/prefetch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/dot_rows-inl.hpp"
#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

#ifndef TERRACE_KERNELS_ATTENTION_ONCE
#define TERRACE_KERNELS_ATTENTION_ONCE
namespace terrace::kernels::host {

constexpr std::size_t head_dim_max = 1024;  // KvShape::validate
constexpr std::size_t heads_per_pass = 8;   // query heads that share one reading of the rows

/// Query heads that attend to one piece, and where their parts of the result go.
struct PieceHeads {
  const float* query = nullptr;  // [count, head_dim]
  std::size_t count = 0;
  float* partial = nullptr;        // of head 0: output [head_dim], maximum, sum
  std::size_t partial_stride = 0;  // floats between heads
};

/// A head's online softmax in the making. Padded, so that vectors need no tails.
struct HeadState {
  alignas(64) float query[head_dim_max];
  alignas(64) float output[head_dim_max];
  alignas(64) float weights[tile_rows];  // of the tile: first logits, then their exponentials
  float maximum;
  float sum;
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t state_stride = sizeof(HeadState) / sizeof(float);

/// A tile of entries. Behind its rows come as many of the next tile, to be prefetched.
struct Tile {
  const std::byte* const* rows;
  const float* bias;
  std::size_t count;
};

/// Turns the dot products of a tile into weights exp(logit - maximum), rescaling what was summed.
HWY_INLINE void weigh(HeadState& head, const Tile& tile, float scale, std::size_t dims) {
  const FloatTag tag;
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  for (std::size_t t = 0; t < tile_rows; t += lanes) {
    const Floats dots = hn::Load(tag, head.weights + t);
    const Floats logits = hn::MulAdd(hn::Set(tag, scale), dots, hn::LoadU(tag, tile.bias + t));
    hn::Store(logits, tag, head.weights + t);
  }
  for (std::size_t t = tile.count; t < tile_rows; ++t) head.weights[t] = minus_infinity;
  Floats maximum = hn::Set(tag, head.maximum);
  for (std::size_t t = 0; t < tile_rows; t += lanes) {
    maximum = hn::Max(maximum, hn::Load(tag, head.weights + t));
  }
  const float new_maximum = max_of_lanes(maximum);
  // With all logits -inf so far any finite base gives weights 0.
  const float base = new_maximum == minus_infinity ? 0.0F : new_maximum;
  Floats sum = hn::Zero(tag);
  for (std::size_t t = 0; t < tile_rows; t += lanes) {
    const Floats logits = hn::Load(tag, head.weights + t);
    const Floats weights = exp_nonpositive(hn::Sub(logits, hn::Set(tag, base)));
    hn::Store(weights, tag, head.weights + t);
    sum = hn::Add(sum, weights);
  }
  const Floats rescale = exp_nonpositive(hn::Set(tag, head.maximum - base));
  head.sum = head.sum * hn::GetLane(rescale) + sum_of_lanes(sum);
  if (new_maximum != head.maximum) {
    for (std::size_t i = 0; i < dims; i += lanes) {
      hn::Store(hn::Mul(hn::Load(tag, head.output + i), rescale), tag, head.output + i);
    }
  }
  head.maximum = new_maximum;
}

/// Adds weight * value over the tile to `width` vectors of output of each head. The slab starts
/// `offset` bytes into a row; load(address, v) reads its vector v.
template <std::size_t heads, std::size_t width, typename Load>
HWY_INLINE void add_value_slab(HeadState* head, const Tile& tile, std::size_t dim,
                               std::size_t offset, std::size_t slab_bytes, Load load) {
  const FloatTag tag;
  Floats sums[heads * width];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < heads * width; ++i) {
    sums[i] = hn::Load(tag, head[i / width].output + dim + i % width * lanes);
  }
  for (std::size_t t = 0; t < tile.count; ++t) {
    if (offset % line_bytes == 0) prefetch(tile.rows[t + tile_rows] + offset, slab_bytes);
#pragma GCC unroll 8
    for (std::size_t v = 0; v < width; ++v) {
      const Floats value = load(tile.rows[t] + offset, v);
#pragma GCC unroll 4
      for (std::size_t h = 0; h < heads; ++h) {
        const Floats weight = hn::Set(tag, head[h].weights[t]);
        sums[h * width + v] = hn::MulAdd(weight, value, sums[h * width + v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < heads * width; ++i) {
    hn::Store(sums[i], tag, head[i / width].output + dim + i % width * lanes);
  }
}

template <typename Elements, std::size_t heads>
HWY_INLINE void add_values(HeadState* head, const Tile& tile, std::size_t dims) {
  constexpr std::size_t width = heads == 1 ? 8 : heads == 2 ? 4 : 2;
  constexpr std::size_t vector_bytes = lanes * Elements::bytes;
  const auto load = [](const std::byte* slab, std::size_t v)
                        HWY_ATTR { return Elements::load(slab + v * vector_bytes); };
  std::size_t dim = 0;
  std::size_t offset = dims * Elements::bytes;  // values follow the key
  for (; dim + width * lanes <= dims; dim += width * lanes, offset += width * vector_bytes) {
    add_value_slab<heads, width>(head, tile, dim, offset, width * vector_bytes, load);
  }
  for (; dim + lanes <= dims; dim += lanes, offset += vector_bytes) {
    add_value_slab<heads, 1>(head, tile, dim, offset, vector_bytes, load);
  }
  if (dim == dims) return;
  const std::size_t rest = dims - dim;
  const auto load_rest = [rest](const std::byte* slab, std::size_t)
                             HWY_ATTR { return load_tail<Elements>(slab, rest); };
  add_value_slab<heads, 1>(head, tile, dim, offset, rest * Elements::bytes, load_rest);
}

/// Adds a tile to the softmax of `heads` heads.
template <typename Elements, std::size_t heads>
HWY_NOINLINE void attend_tile(HeadState* head, const Tile& tile, float scale, std::size_t dims) {
  const auto prefetch_keys = [&](std::size_t t) HWY_ATTR {
    for (std::size_t i = 0; i < rows_per_step<heads>; ++i) {
      prefetch(tile.rows[t + i + tile_rows], dims * Elements::bytes);
    }
  };
  dot_rows<Elements, heads>(head->query, state_stride, tile.rows, tile.count, dims, head->weights,
                            state_stride, prefetch_keys);
  for (std::size_t h = 0; h < heads; ++h) weigh(head[h], tile, scale, dims);
  add_values<Elements, heads>(head, tile, dims);
}

/// Adds a tile to the softmax of any number of heads, four, two or one at a time.
template <typename Elements>
HWY_INLINE void attend_tile_any(HeadState* head, std::size_t heads, const Tile& tile, float scale,
                                std::size_t dims) {
  for (; heads >= 4; heads -= 4, head += 4) attend_tile<Elements, 4>(head, tile, scale, dims);
  for (; heads >= 2; heads -= 2, head += 2) attend_tile<Elements, 2>(head, tile, scale, dims);
  if (heads == 1) attend_tile<Elements, 1>(head, tile, scale, dims);
}

template <typename Elements>
HWY_INLINE void attend_piece_of(const EntryPiece& piece, const PieceHeads& heads, float scale,
                                std::size_t dims) {
  HeadState state[heads_per_pass];
  const std::size_t padded = (dims + lanes - 1) / lanes * lanes;
  for (std::size_t h = 0; h < heads.count; ++h) {
    for (std::size_t i = 0; i < padded; ++i) {
      state[h].query[i] = i < dims ? heads.query[h * dims + i] : 0.0F;
      state[h].output[i] = 0;
    }
    state[h].maximum = -std::numeric_limits<float>::infinity();
    state[h].sum = 0;
  }
  for (std::size_t t = 0; t < HWY_MIN(tile_rows, piece.count); ++t) {
    prefetch(piece.rows[t], 2 * dims * Elements::bytes);
  }
  for (std::size_t begin = 0; begin < piece.count; begin += tile_rows) {
    const Tile tile{&piece.rows[begin], &piece.bias[begin],
                    HWY_MIN(tile_rows, piece.count - begin)};
    attend_tile_any<Elements>(state, heads.count, tile, scale, dims);
  }
  for (std::size_t h = 0; h < heads.count; ++h) {
    float* partial = heads.partial + h * heads.partial_stride;
    for (std::size_t i = 0; i < dims; ++i) partial[i] = state[h].output[i];
    partial[dims] = state[h].maximum;
    partial[dims + 1] = state[h].sum;
  }
}

void attend_piece(const EntryPiece& piece, const PieceHeads& heads, float scale,
                  const KvShape& shape) {
  switch (shape.dtype) {
    case Dtype::f32:
      return attend_piece_of<F32Elements>(piece, heads, scale, shape.head_dim);
    case Dtype::f16:
      return attend_piece_of<F16Elements>(piece, heads, scale, shape.head_dim);
    case Dtype::bf16:
      return attend_piece_of<Bf16Elements>(piece, heads, scale, shape.head_dim);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(attend_piece);

/// Attends to one piece of one list, for all query heads that use the list.
void attend_part(const DecodeAttention& op, std::size_t list, std::size_t piece,
                 std::size_t pieces) noexcept {
  const std::size_t dims = op.shape.head_dim;
  const std::size_t list_heads = op.shape.query_heads / list_count(op);
  EntryPiece entries;
  gather_piece(op, list, piece, entries);
  if (entries.count == 0) return;
  for (std::size_t done = 0; done < list_heads; done += heads_per_pass) {
    const std::size_t head = list * list_heads + done;
    const PieceHeads heads{.query = op.query + head * dims,
                           .count = std::min(heads_per_pass, list_heads - done),
                           .partial = op.scratch + (head * pieces + piece) * (dims + 2),
                           .partial_stride = pieces * (dims + 2)};
    HWY_DYNAMIC_DISPATCH(attend_piece)(entries, heads, op.scale, op.shape);
  }
}

/// Merges a head's pieces, in order, into its output.
void merge_pieces(const DecodeAttention& op, std::size_t head, std::size_t pieces,
                  std::size_t stride) noexcept {
  const std::size_t dims = op.shape.head_dim;
  const float* partials = op.scratch + head * stride * (dims + 2);
  float* output = op.output + head * dims;
  std::fill_n(output, dims, 0.0F);
  float maximum = -std::numeric_limits<float>::infinity();
  for (std::size_t p = 0; p < pieces; ++p) {
    maximum = std::max(maximum, partials[p * (dims + 2) + dims]);
  }
  float sum = 0;
  for (std::size_t p = 0; p < pieces; ++p) {
    const float* partial = partials + p * (dims + 2);
    // A piece without weight (all logits -inf) has nothing to add; its difference may be NaN.
    if (partial[dims + 1] == 0) continue;
    const float factor = std::exp(partial[dims] - maximum);
    sum += partial[dims + 1] * factor;
    for (std::size_t i = 0; i < dims; ++i) output[i] += partial[i] * factor;
  }
  if (sum == 0) return;
  for (std::size_t i = 0; i < dims; ++i) output[i] /= sum;
}

}  // namespace

void decode_attention(const DecodeAttention& op, Parallel& threads) {
  const auto pieces_of = [&op](std::size_t list) {
    return (entry_count(op, list) + attention_split - 1) / attention_split;
  };
  const std::size_t lists = list_count(op);
  std::size_t pieces = 0;  // of the longest list
  for (std::size_t list = 0; list < lists; ++list) pieces = std::max(pieces, pieces_of(list));
  threads.for_each(lists * pieces, [&](std::size_t part) {
    attend_part(op, part / pieces, part % pieces, pieces);
  });
  threads.for_each(op.shape.query_heads, [&](std::size_t head) {
    merge_pieces(op, head, pieces_of(head * lists / op.shape.query_heads), pieces);
  });
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
