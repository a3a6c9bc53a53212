// The weights that query tokens gave to the rows of a tile: see terrace/kernels/attention.hpp.
// A part of the work is some rows of one KV head, for all tokens, so that no two parts add to the
// same sum. The keys of a tile of `tile_rows` rows are widened and transposed once, into the first
// cache, and all query heads of all tokens pass over them: a vector is one element of many keys, so
// that products take neither sums over lanes nor conversions.
#include <algorithm>
#include <numbers>

#include "host/attention_entries.hpp"
#include "terrace/kernels/attention.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/tile_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

#ifndef TERRACE_KERNELS_TILE_WEIGHTS_ONCE
#define TERRACE_KERNELS_TILE_WEIGHTS_ONCE
namespace terrace::kernels::host {

/// Keys of a tile of rows, transposed.
struct KeyTile {
  std::size_t begin;  // of it in its part
  std::size_t count;
  // [head_dim, tile_rows]; after the last row copies of it
  alignas(64) float keys[KvShape::head_dim_max * tile_rows];
};

/// Rows [begin, end) of a tile, of one KV head: the part of the work that one thread does.
struct WeighedRows {
  const TileWeights& op;
  std::size_t kv_head;
  std::size_t begin;
  std::size_t end;
  const std::byte* const* rows;  // [end - begin]

  [[nodiscard]] std::size_t group() const noexcept { return op.tile.shape.group(); }
  // Query head number n is head n % group of token n / group.
  [[nodiscard]] std::size_t query_head(std::size_t n) const noexcept {
    return kv_head * group() + n % group();
  }
  [[nodiscard]] const float* query(std::size_t n) const noexcept {
    return op.tile.query + n / group() * op.tile.query_stride +
           query_head(n) * op.tile.shape.head_dim;
  }
  /// The greatest logit, then the sum of weights.
  [[nodiscard]] const float* softmax(std::size_t n) const noexcept {
    return op.tile.state_of(n / group(), query_head(n)) + op.tile.shape.head_dim;
  }
  /// Sums of the rows from `begin` on.
  [[nodiscard]] float* sums(std::size_t n) const noexcept {
    const std::size_t list = op.weights.scope == ListScope::query_head ? query_head(n) : kv_head;
    return op.weights.sums + list * op.weights.stride + op.first_column + begin;
  }
  /// How many of the rows number n sees.
  [[nodiscard]] std::size_t seen(std::size_t n) const noexcept {
    return std::clamp(op.tile.rows_seen(n / group()), begin, end) - begin;
  }
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Logits of one query head, and what all of its logits add up to.
struct HeadLogits {
  const float* logits;  // [count], to the base 2
  std::size_t count;
  float maximum;  // of all
  float sum;      // of 2^(logit - maximum), over all
};

/// Adds each logit's weight to its place of `sums`. Nothing is read or written after `count`.
HWY_INLINE void add_weights(const HeadLogits& head, float* sums) {
  if (head.sum == 0) return;
  const FloatTag tag;
  const Floats maximum = hn::Set(tag, head.maximum);
  const Floats factor = hn::Set(tag, 1.0F / head.sum);
  const auto add = [&](const float* logits, float* to) HWY_ATTR {
    const Floats weight = exp2_nonpositive(hn::Sub(hn::LoadU(tag, logits), maximum));
    hn::StoreU(hn::MulAdd(weight, factor, hn::LoadU(tag, to)), tag, to);
  };
  std::size_t i = 0;
  for (; i + lanes <= head.count; i += lanes) add(head.logits + i, sums + i);
  if (i == head.count) return;
  float logits[lanes] = {};
  float rest[lanes] = {};
  const std::size_t rest_bytes = (head.count - i) * sizeof(float);
  std::memcpy(logits, head.logits + i, rest_bytes);
  std::memcpy(rest, sums + i, rest_bytes);
  add(logits, rest);
  std::memcpy(sums + i, rest, rest_bytes);
}

constexpr std::size_t vectors = tile_rows / lanes;  // of a tile
// Query heads that pass over a tile together: their products fill half of the registers.
constexpr std::size_t weighed_at_once = HWY_MAX(1, registers / 2 / vectors);

/// Adds the weights of query heads [first, first + heads).
template <std::size_t heads>
HWY_INLINE void weigh_heads(const WeighedRows& part, const KeyTile& tile, std::size_t first) {
  const FloatTag tag;
  const std::size_t dims = part.op.tile.shape.head_dim;
  const float* queries[heads];
  Floats dots[heads * vectors];
  for (std::size_t h = 0; h < heads; ++h) queries[h] = part.query(first + h);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < heads * vectors; ++i) dots[i] = hn::Zero(tag);
  for (std::size_t dim = 0; dim < dims; ++dim) {
    const float* keys = tile.keys + dim * tile_rows;
#pragma GCC unroll 8
    for (std::size_t h = 0; h < heads; ++h) {
      const Floats element = hn::Set(tag, queries[h][dim]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < vectors; ++v) {
        Floats& dot = dots[h * vectors + v];
        dot = hn::MulAdd(element, hn::Load(tag, keys + v * lanes), dot);
      }
    }
  }
  const Floats scale = hn::Set(tag, part.op.tile.scale * std::numbers::log2e_v<float>);
#pragma GCC unroll 8
  for (std::size_t h = 0; h < heads; ++h) {
    alignas(64) float logits[tile_rows];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) {
      hn::Store(hn::Mul(dots[h * vectors + v], scale), tag, logits + v * lanes);
    }
    const std::size_t seen = part.seen(first + h);
    if (seen <= tile.begin) continue;
    add_weights({.logits = logits,
                 .count = HWY_MIN(tile.count, seen - tile.begin),
                 .maximum = part.softmax(first + h)[0],
                 .sum = part.softmax(first + h)[1]},
                part.sums(first + h) + tile.begin);
  }
}

/// Adds the weights of all tokens that see anything of a tile.
HWY_NOINLINE void weigh_tile(const WeighedRows& part, const KeyTile& tile) {
  const std::size_t group = part.group();
  std::size_t n = 0;
  const std::size_t end = part.op.tile.tokens * group;
  while (n < end && part.seen(n) <= tile.begin) n += group;
  for (; n + weighed_at_once <= end; n += weighed_at_once) {
    weigh_heads<weighed_at_once>(part, tile, n);
  }
  for (; n < end; ++n) weigh_heads<1>(part, tile, n);
}

template <typename Elements>
HWY_NOINLINE void load_keys(const std::byte* const* rows, std::size_t dims, KeyTile& tile) {
  const FloatTag tag;
  alignas(64) float elements[lanes];
  for (std::size_t t = 0; t < tile_rows; ++t) {
    const std::byte* row = rows[HWY_MIN(t, tile.count - 1)];
    for (std::size_t dim = 0; dim < dims; dim += lanes) {
      const std::size_t count = HWY_MIN(lanes, dims - dim);
      const std::byte* at = row + dim * Elements::bytes;
      hn::Store(count == lanes ? Elements::load(at) : load_tail<Elements>(at, count), tag,
                elements);
      for (std::size_t i = 0; i < count; ++i) tile.keys[(dim + i) * tile_rows + t] = elements[i];
    }
  }
}

void weigh_rows_on_target(const WeighedRows& part) {
  const KvShape& shape = part.op.tile.shape;
  KeyTile tile;
  for (tile.begin = 0; tile.begin < part.end - part.begin; tile.begin += tile_rows) {
    const std::byte* const* rows = part.rows + tile.begin;
    tile.count = HWY_MIN(tile_rows, part.end - part.begin - tile.begin);
    if (shape.dtype == Dtype::f32) load_keys<F32Elements>(rows, shape.head_dim, tile);
    if (shape.dtype == Dtype::f16) load_keys<F16Elements>(rows, shape.head_dim, tile);
    if (shape.dtype == Dtype::bf16) load_keys<Bf16Elements>(rows, shape.head_dim, tile);
    weigh_tile(part, tile);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(weigh_rows_on_target);

/// Returns how many rows a part has: a piece, or fewer if that left threads without a part. The
/// number divides a piece.
std::size_t rows_of_part(const TileAttention& tile, std::size_t threads) noexcept {
  constexpr std::size_t parts_of_thread = 4;
  const std::size_t wanted = threads == 1 ? 1 : parts_of_thread * threads;
  std::size_t rows = attention_split;
  while (rows > tile_rows && tile.shape.kv_heads * divide_up(tile.row_count, rows) < wanted) {
    rows /= 2;
  }
  return rows;
}

}  // namespace

void tile_weights(const TileWeights& op, Parallel& threads) {
  const TileAttention& tile = op.tile;
  if (tile.tokens == 0) return;
  const std::size_t seen = tile.rows_seen(tile.tokens - 1);
  const std::size_t rows = rows_of_part(tile, threads.concurrency());
  const std::size_t parts = divide_up(seen, rows);
  threads.for_each(tile.shape.kv_heads * parts, [&](std::size_t i) {
    const std::size_t begin = i % parts * rows;
    const std::byte* addresses[attention_split];
    gather_rows(tile, i / parts, begin, {addresses, std::min(rows, seen - begin)});
    const WeighedRows part{.op = op,
                           .kv_head = i / parts,
                           .begin = begin,
                           .end = std::min(begin + rows, seen),
                           .rows = addresses};
    HWY_DYNAMIC_DISPATCH(weigh_rows_on_target)(part);
  });
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
