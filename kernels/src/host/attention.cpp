// Decode attention: see terrace/kernels/attention.hpp.
// A part of the work is a piece of one list for up to 8 query heads. Within it, a tile of
// `tile_rows` rows passes three steps: logits, weights, and the weighted sum of values, whose
// registers hold a slab of dimensions at a time. Up to 4 heads take these steps together, so that a
// row is widened to f32 once for all of them.
//
// The bytes of a tile are prefetched while the tile before it is worked on: for each byte read a
// byte of the next rows, in the order of memory. This keeps memory busy all the time, and neither
// memory nor arithmetic waits for a burst of the other. Logits are to the base 2, which spares the
// exponential a product: the queries are multiplied by log2(e) beforehand.
#include "terrace/kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "host/add_weights.hpp"
#include "host/attention_piece.hpp"
#include "host/prefetch.hpp"
#include "host/rest_attention.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/add_rows-inl.hpp"
#include "host/dot_rows-inl.hpp"
#include "host/exp-inl.hpp"
#include "host/rows_ahead-inl.hpp"
#include "host/vectors-inl.hpp"

#ifndef TERRACE_KERNELS_ATTENTION_ONCE
#define TERRACE_KERNELS_ATTENTION_ONCE
namespace terrace::kernels::host {

constexpr std::size_t heads_at_once_max = 4;
constexpr std::size_t lanes_max = 16;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr float log2_e = std::numbers::log2e_v<float>;

/// The online softmax of up to 4 heads in the making. Numbers used together lie together: strides
/// of pages would cost half of the speed. Room is for whole vectors, which need no tails.
struct HeadGroup {
  // Packed; times scale and log2(e).
  alignas(64) float query[heads_at_once_max * KvShape::head_dim_max];
  alignas(64) float output[heads_at_once_max * KvShape::head_dim_max];
  alignas(64) float weights[heads_at_once_max * tile_rows];  // first logits, then exponentials
  alignas(64) float sums[heads_at_once_max * lanes_max];     // of weights, lane by lane
  float maximum[heads_at_once_max];                          // to the base 2, as the logits
  std::size_t count;                                         // heads
  std::size_t stride;       // of output: dimensions up to a whole vector
  float* kept;              // where the weights of the first head go, or null
  float* bases;             // and their bases
  std::size_t kept_stride;  // of both, between heads
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Heads that take a tile's steps together. The level without vectors need not be fast, and
/// compiles in a third of the time where it takes one head after the other.
constexpr std::size_t heads_at_once = HWY_TARGET == HWY_EMU128 ? 1 : heads_at_once_max;

/// A tile of entries.
struct Tile {
  const std::byte* const* rows;
  const float* bias;  // [tile_rows], or null
  std::size_t count;
  std::size_t begin;  // of it in its piece
};

/// Adds the bias to a head's logits, fills them up with -inf, and returns their maximum.
HWY_INLINE float finish_logits(float* logits, const Tile& tile) {
  const FloatTag tag;
  if (tile.bias != nullptr) {
    for (std::size_t t = 0; t < tile_rows; t += lanes) {
      const Floats bias = hn::LoadU(tag, tile.bias + t);
      const Floats dots = hn::Load(tag, logits + t);
      hn::Store(hn::MulAdd(bias, hn::Set(tag, log2_e), dots), tag, logits + t);
    }
  }
  for (std::size_t t = tile.count; t < tile_rows; ++t) logits[t] = minus_infinity;
  Floats maximum = hn::Load(tag, logits);
  for (std::size_t t = lanes; t < tile_rows; t += lanes) {
    maximum = hn::Max(maximum, hn::Load(tag, logits + t));
  }
  return max_of_lanes(maximum);
}

/// Makes a new maximum the base of what head h summed.
HWY_INLINE void rebase(HeadGroup& group, std::size_t h, float maximum) {
  const FloatTag tag;
  const Floats factor = exp2_nonpositive(hn::Set(tag, group.maximum[h] - maximum));
  group.maximum[h] = maximum;
  float* sums = group.sums + h * lanes_max;
  hn::Store(hn::Mul(hn::Load(tag, sums), factor), tag, sums);
  float* output = group.output + h * group.stride;
  for (std::size_t i = 0; i < group.stride; i += lanes) {
    hn::Store(hn::Mul(hn::Load(tag, output + i), factor), tag, output + i);
  }
}

/// Turns the logits of head h into weights 2^(logit - maximum) and adds these up.
HWY_INLINE void exponentiate(HeadGroup& group, std::size_t h) {
  const FloatTag tag;
  float* weights = group.weights + h * tile_rows;
  float* sums = group.sums + h * lanes_max;
  // If all logits so far are -inf, any finite base gives weights 0.
  const float maximum = group.maximum[h];
  const Floats base = hn::Set(tag, maximum == minus_infinity ? 0.0F : maximum);
  Floats sum = hn::Load(tag, sums);
#pragma GCC unroll 8
  for (std::size_t t = 0; t < tile_rows; t += lanes) {
    const Floats weight = exp2_nonpositive(hn::Sub(hn::Load(tag, weights + t), base));
    hn::Store(weight, tag, weights + t);
    sum = hn::Add(sum, weight);
  }
  hn::Store(sum, tag, sums);
}

/// Keeps the weights of head h, if weights are wanted.
HWY_INLINE void keep_weights(const HeadGroup& group, std::size_t h, const Tile& tile) {
  const FloatTag tag;
  const float* weights = group.weights + h * tile_rows;
  float* kept = group.kept + h * group.kept_stride + tile.begin;
  group.bases[h * group.kept_stride + tile.begin / tile_rows] = group.maximum[h];
  if (tile.count < tile_rows) {
    std::copy_n(weights, tile.count, kept);
    return;
  }
  for (std::size_t t = 0; t < tile_rows; t += lanes) {
    hn::StoreU(hn::Load(tag, weights + t), tag, kept + t);
  }
}

/// Adds a tile to the softmax of a group of `heads` heads. If `fixed_dims` is not 0 it is the
/// head_dim, and loops over it are unrolled.
template <typename Elements, std::size_t heads, std::size_t fixed_dims, typename Ahead>
HWY_NOINLINE Ahead attend_tile_as(HeadGroup& group, const Tile& tile, std::size_t head_dim,
                                  Ahead ahead) {
  const std::size_t dims = fixed_dims != 0 ? fixed_dims : head_dim;
  dot_rows<Elements, heads>(group.query, tile.rows, tile.count, dims, group.weights, tile_rows,
                            [&] HWY_ATTR { ahead.ask_line(); });
  for (std::size_t h = 0; h < heads; ++h) {
    const float maximum = finish_logits(group.weights + h * tile_rows, tile);
    // Not just when it is greater: a NaN, too, goes into all that was summed.
    if (!(maximum <= group.maximum[h])) rebase(group, h, maximum);
  }
#pragma GCC unroll 4
  for (std::size_t h = 0; h < heads; ++h) exponentiate(group, h);
  if (group.kept != nullptr) {
    for (std::size_t h = 0; h < heads; ++h) keep_weights(group, h, tile);
  }
  add_rows<Elements, heads>({.weights = group.weights,
                             .weight_stride = tile_rows,
                             .rows = tile.rows,
                             .count = tile.count,
                             .begin = dims * Elements::bytes,
                             .numbers = dims,
                             .sums = group.output,
                             .sum_stride = group.stride},
                            [&] HWY_ATTR { ahead.ask_line(); });
  return ahead;
}

template <typename Elements, std::size_t fixed_dims, typename Ahead>
HWY_INLINE Ahead attend_tile(HeadGroup& group, const Tile& tile, std::size_t dims, Ahead ahead) {
  if constexpr (heads_at_once > 1) {
    if (group.count == 4) return attend_tile_as<Elements, 4, fixed_dims>(group, tile, dims, ahead);
    if (group.count == 3) return attend_tile_as<Elements, 3, fixed_dims>(group, tile, dims, ahead);
    if (group.count == 2) return attend_tile_as<Elements, 2, fixed_dims>(group, tile, dims, ahead);
  }
  return attend_tile_as<Elements, 1, fixed_dims>(group, tile, dims, ahead);
}

/// Begins the softmax of heads [first, first + count) of a piece.
HWY_INLINE void begin_group(const PieceHeads& heads, std::size_t first, std::size_t dims,
                            HeadGroup& group) {
  group.count = HWY_MIN(heads_at_once, heads.count - first);
  group.stride = (dims + lanes - 1) / lanes * lanes;
  pack_queries(heads.query + first * dims, group.count, dims, heads.scale * log2_e, group.query);
  std::fill_n(group.output, group.count * group.stride, 0.0F);
  std::fill_n(group.sums, group.count * lanes_max, 0.0F);
  std::fill_n(group.maximum, group.count, minus_infinity);
  group.kept = heads.weights == nullptr ? nullptr : heads.weights + first * heads.kept_stride;
  group.bases = heads.bases == nullptr ? nullptr : heads.bases + first * heads.kept_stride;
  group.kept_stride = heads.kept_stride;
}

/// Writes the results of the group that begins at head `first` of the piece.
HWY_INLINE void end_group(const PieceHeads& heads, std::size_t first, std::size_t dims,
                          const HeadGroup& group) {
  for (std::size_t h = 0; h < group.count; ++h) {
    float* partial = heads.partial + (first + h) * heads.partial_stride;
    std::copy_n(group.output + h * group.stride, dims, partial);
    partial[dims] = group.maximum[h];
    partial[dims + 1] = sum_of_lanes(hn::Load(FloatTag(), group.sums + h * lanes_max));
  }
}

/// Returns whether a tile's rows seem to lie side by side. The answer only guides prefetching, so
/// it may be wrong.
HWY_INLINE bool side_by_side(const std::byte* const* rows, std::size_t row_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(rows[0]);
  const auto last = reinterpret_cast<std::uintptr_t>(rows[tile_rows - 1]);
  return last - first == (tile_rows - 1) * row_bytes;
}

template <typename Elements, std::size_t fixed_dims>
HWY_INLINE void attend_piece_as(const EntryPiece& piece, const PieceHeads& heads,
                                std::size_t dims) {
  HeadGroup groups[heads_per_pass / heads_at_once];
  const std::size_t group_count = (heads.count + heads_at_once - 1) / heads_at_once;
  for (std::size_t i = 0; i < group_count; ++i) {
    begin_group(heads, i * heads_at_once, dims, groups[i]);
  }
  const std::size_t row_bytes = 2 * dims * Elements::bytes;
  const std::size_t first_rows = HWY_MIN(piece.rows_ahead, piece.count);
  ask_for_pages(piece.rows.data(), first_rows);
  for (std::size_t i = 0; i < first_rows; ++i) prefetch(piece.rows[i], row_bytes);
  for (std::size_t begin = 0; begin < piece.count; begin += tile_rows) {
    const Tile tile{&piece.rows[begin], piece.biased ? &piece.bias[begin] : nullptr,
                    HWY_MIN(tile_rows, piece.count - begin), begin};
    const auto attend_all = [&](auto ahead) HWY_ATTR {
      for (std::size_t i = 0; i < group_count; ++i) {
        ahead = attend_tile<Elements, fixed_dims>(groups[i], tile, dims, ahead);
      }
    };
    const std::byte* const* next = tile.rows + piece.rows_ahead;
    if (side_by_side(next, row_bytes)) {
      attend_all(RunAhead(next[0], next[0] + tile_rows * row_bytes));
    } else {
      attend_all(RowsAhead(next, tile_rows, row_bytes));
    }
  }
  for (std::size_t i = 0; i < group_count; ++i)
    end_group(heads, i * heads_at_once, dims, groups[i]);
}

/// The head dimensions of most models have code of their own, but not on the level without vectors,
/// which compiles slowest and need not be fast.
template <typename Elements>
HWY_INLINE void attend_piece_of(const EntryPiece& piece, const PieceHeads& heads,
                                std::size_t dims) {
  if constexpr (HWY_TARGET != HWY_EMU128) {
    if (dims == 64) return attend_piece_as<Elements, 64>(piece, heads, dims);
    if (dims == 128) return attend_piece_as<Elements, 128>(piece, heads, dims);
  }
  attend_piece_as<Elements, 0>(piece, heads, dims);
}

void attend_on_target(const EntryPiece& piece, const PieceHeads& heads, const KvShape& shape) {
  switch (shape.dtype) {
    case Dtype::f32:
      return attend_piece_as<F32Elements, 0>(piece, heads, shape.head_dim);
    case Dtype::f16:
      return attend_piece_of<F16Elements>(piece, heads, shape.head_dim);
    case Dtype::bf16:
      return attend_piece_of<Bf16Elements>(piece, heads, shape.head_dim);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(attend_on_target);

}  // namespace

void attend_piece(const EntryPiece& piece, const PieceHeads& heads, const KvShape& shape) noexcept {
  HWY_DYNAMIC_DISPATCH(attend_on_target)(piece, heads, shape);
}

namespace {

/// The place of weights until the maximum is known: weights_scratch is [query_heads, weights of the
/// stride | bases].
struct KeptPlace {
  float* weights;
  float* bases;
  std::size_t stride;  // floats between heads, of both

  KeptPlace(const DecodeAttention& op, std::size_t head, std::size_t piece) noexcept
      : stride(attention_weights_scratch_floats(op.shape, op.weights.stride) /
               op.shape.query_heads) {
    float* of_head = op.weights_scratch + head * stride;
    weights = of_head + piece * attention_split;
    bases = of_head + op.weights.stride + piece * attention_split / tile_rows;
  }
};

/// Attends to one piece of one list, for all query heads that use the list.
void attend_part(const DecodeAttention& op, std::size_t list, std::size_t piece,
                 std::size_t pieces) noexcept {
  const std::size_t dims = op.shape.head_dim;
  const std::size_t list_heads = op.shape.query_heads / list_count(op.shape, op.scope);
  EntryPiece entries;
  gather_piece(op, list, piece, entries);
  if (entries.count == 0) return;
  for (std::size_t done = 0; done < list_heads; done += heads_per_pass) {
    const std::size_t head = list * list_heads + done;
    PieceHeads heads{.query = op.query + head * dims,
                     .count = std::min(heads_per_pass, list_heads - done),
                     .scale = op.scale,
                     .partial = op.scratch + (head * pieces + piece) * (dims + 2),
                     .partial_stride = pieces * (dims + 2)};
    if (op.weights.sums != nullptr) {
      const KeptPlace kept(op, head, piece);
      heads.weights = kept.weights;
      heads.bases = kept.bases;
      heads.kept_stride = kept.stride;
    }
    attend_piece(entries, heads, op.shape);
  }
}

/// Merges a head's pieces, in order, into its output. For weights the first piece's maximum and sum
/// become those of all.
void merge_pieces(const DecodeAttention& op, std::size_t head, std::size_t pieces,
                  std::size_t stride) noexcept {
  const std::size_t dims = op.shape.head_dim;
  float* partials = op.scratch + head * stride * (dims + 2);
  float* output = op.output + head * dims;
  std::fill_n(output, dims, 0.0F);
  float maximum = minus_infinity;
  for (std::size_t p = 0; p < pieces; ++p) {
    maximum = std::max(maximum, partials[p * (dims + 2) + dims]);
  }
  float sum = 0;
  for (std::size_t p = 0; p < pieces; ++p) {
    const float* partial = partials + p * (dims + 2);
    // A piece without weight (all logits -inf) has nothing to add; its difference may be NaN.
    if (partial[dims + 1] == 0) continue;
    const float factor = std::exp2(partial[dims] - maximum);
    sum += partial[dims + 1] * factor;
    for (std::size_t i = 0; i < dims; ++i) output[i] += partial[i] * factor;
  }
  if (op.weights.sums != nullptr && pieces > 0) {
    partials[dims] = maximum;
    partials[dims + 1] = sum;
  }
  if (sum == 0) return;
  for (std::size_t i = 0; i < dims; ++i) output[i] /= sum;
}

/// Writes the weights of a piece of a list, summed over its query heads. All of these are merged,
/// each having `pieces` partial results.
void weigh_part(const DecodeAttention& op, std::size_t list, std::size_t piece,
                std::size_t pieces) noexcept {
  const std::size_t dims = op.shape.head_dim;
  const std::size_t list_heads = op.shape.query_heads / list_count(op.shape, op.weights.scope);
  const std::size_t first = list * list_heads;
  const std::size_t entries =
      entry_count(op, first * list_count(op.shape, op.scope) / op.shape.query_heads);
  const std::size_t begin = piece * attention_split;
  if (begin >= entries) return;
  const std::size_t count = std::min(attention_split, entries - begin);
  float* sums = op.weights.sums + list * op.weights.stride + begin;
  std::fill_n(sums, count, 0.0F);
  for (std::size_t head = first; head < first + list_heads; ++head) {
    const float* of_all = op.scratch + head * pieces * (dims + 2) + dims;
    const KeptPlace kept(op, head, piece);
    add_weights({.weights = kept.weights,
                 .bases = kept.bases,
                 .count = count,
                 .maximum = of_all[0],
                 .sum = of_all[1]},
                sums);
  }
}

/// Attends with a list after the other and writes its weights, where what is kept of it is still in
/// a near cache: if the lists are not fewer than the threads.
void attend_list(const DecodeAttention& op, std::size_t list, std::size_t list_pieces,
                 std::size_t pieces) noexcept {
  const std::size_t lists = list_count(op.shape, op.scope);
  const auto own = [&](std::size_t count) {  // of all lists' heads, or lists of weights
    return TokenRange{list * count / lists, (list + 1) * count / lists};
  };
  for (std::size_t piece = 0; piece < list_pieces; ++piece) attend_part(op, list, piece, pieces);
  const TokenRange heads = own(op.shape.query_heads);
  for (std::size_t head = heads.begin; head < heads.end; ++head) {
    merge_pieces(op, head, list_pieces, pieces);
  }
  const TokenRange weighed = own(list_count(op.shape, op.weights.scope));
  for (std::size_t i = weighed.begin; i < weighed.end; ++i) {
    for (std::size_t piece = 0; piece < list_pieces; ++piece) weigh_part(op, i, piece, pieces);
  }
}

/// Attends to the entries of a list that are resident, piece by piece, and then to the others.
void attend_with_rests(const DecodeAttention& op, Parallel& threads) {
  DecodeAttention resident = op;
  resident.selected = nullptr;
  const std::size_t resident_pieces = divide_up(entry_count(resident, 0), attention_split);
  const std::size_t pieces = resident_pieces + 1;
  const std::size_t group = op.shape.group();
  const std::size_t numbers = op.shape.head_dim + 2;
  threads.for_each(op.shape.kv_heads, [&](std::size_t kv_head) {
    for (std::size_t piece = 0; piece < resident_pieces; ++piece) {
      attend_part(resident, kv_head, piece, pieces);
    }
    const std::size_t first = kv_head * group;
    attend_rests(op, kv_head, op.scratch + (first * pieces + resident_pieces) * numbers,
                 pieces * numbers);
    for (std::size_t head = first; head < first + group; ++head) {
      merge_pieces(resident, head, pieces, pieces);
    }
  });
}

}  // namespace

void decode_attention(const DecodeAttention& op, Parallel& threads) {
  if (op.rests.ids != nullptr) return attend_with_rests(op, threads);
  const auto pieces_of = [&op](std::size_t list) {
    return (entry_count(op, list) + attention_split - 1) / attention_split;
  };
  const std::size_t lists = list_count(op.shape, op.scope);
  std::size_t pieces = 0;  // of the longest list
  for (std::size_t list = 0; list < lists; ++list) pieces = std::max(pieces, pieces_of(list));
  if (op.weights.sums != nullptr && lists >= threads.concurrency()) {
    threads.for_each(lists,
                     [&](std::size_t list) { attend_list(op, list, pieces_of(list), pieces); });
    return;
  }
  threads.for_each(lists * pieces, [&](std::size_t part) {
    attend_part(op, part / pieces, part % pieces, pieces);
  });
  threads.for_each(op.shape.query_heads, [&](std::size_t head) {
    merge_pieces(op, head, pieces_of(head * lists / op.shape.query_heads), pieces);
  });
  if (op.weights.sums == nullptr) return;
  threads.for_each(list_count(op.shape, op.weights.scope) * pieces,
                   [&](std::size_t part) { weigh_part(op, part / pieces, part % pieces, pieces); });
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
