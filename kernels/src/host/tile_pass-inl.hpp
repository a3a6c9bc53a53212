// A pass of many query heads over some rows of a tile: logits, weights, and weighted sums of
// values. Included once per target, as Highway's foreach_target.h demands.
//
// Products are of matrices, in blocks that fill the registers. For that keys are widened and laid
// out, as many at a time as a vector has lanes, and then values, two vectors of dimensions at a
// time: both stay in the first cache while all heads pass. Few heads take keys and values where
// they lie instead. Sums have the same order either way.
#if defined(TERRACE_KERNELS_TILE_PASS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_TILE_PASS_INL
#undef TERRACE_KERNELS_TILE_PASS_INL
#else
#define TERRACE_KERNELS_TILE_PASS_INL
#endif

#include <cstddef>

#include "host/add_rows-inl.hpp"
#include "host/key_products-inl.hpp"
#include "host/rows_ahead-inl.hpp"
#include "host/tile_part.hpp"
#include "host/tile_softmax-inl.hpp"
#include "host/value_sums-inl.hpp"
#include "terrace/core/bytes.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

// Heads of a block. The level without vectors need not be fast, and compiles sooner with one.
constexpr bool one_by_one = HWY_TARGET == HWY_EMU128;
constexpr std::size_t product_heads = one_by_one ? 1 : registers == 32 ? 4 : 3;
constexpr std::size_t sum_heads = one_by_one ? 1 : registers == 32 ? 8 : 6;
constexpr std::size_t heads_in_place = one_by_one ? 1 : 4;

/// Rows of a tile, and the heads of a part that pass over them.
struct Pass {
  const std::byte* const* rows;  // up to a vector of them may be read after the last one
  std::size_t count;
  std::size_t dims;
  std::size_t first;  // heads [first, end)
  std::size_t end;
  RunsAhead& ahead;
  PartMemory& memory;
};

/// Calls use<count>(first) for blocks of `most` heads, and of fewer at the end.
template <std::size_t most, typename Use>
HWY_INLINE void for_blocks(std::size_t first, std::size_t end, Use use) {
  for (; first + most <= end; first += most) use.template operator()<most>(first);
  if constexpr (most > 1) for_blocks<(most > 4 ? 4 : most - 1)>(first, end, use);
}

/// Writes all logits, except for blocks of heads that do not see the key.
template <typename Elements, std::size_t block, bool in_place>
HWY_INLINE void multiply(const Pass& pass) {
  PartMemory& memory = pass.memory;
  const std::size_t padded = align_up(pass.dims, lanes);
  std::size_t first = pass.first;
  for (std::size_t t = 0; t < pass.count; t += lanes) {
    while (memory.seen[HWY_MIN(first + block, pass.end) - 1] <= t) first += block;
    if constexpr (!in_place) {
      lay_out_keys<Elements>(pass.rows + t, pass.dims, memory.keys);
    }
    for_blocks<block>(first, pass.end, [&]<std::size_t heads>(std::size_t h) HWY_ATTR {
      const float* queries = memory.queries + h * padded;
      float* logits = memory.weights + h * piece_rows + t;
      if constexpr (in_place) {
        multiply_in_place<Elements, heads>(queries, pass.rows + t, pass.dims, pass.ahead, logits,
                                           piece_rows);
      } else {
        if (pass.ahead.done()) {
          NothingAhead nothing;
          multiply_laid_out<heads>(queries, memory.keys, padded, nothing, logits, piece_rows);
        } else {
          multiply_laid_out<heads>(queries, memory.keys, padded, pass.ahead, logits, piece_rows);
        }
      }
    });
  }
}

/// Adds `width` vectors of the values to the sums, from dimension `some.dim` on.
template <typename Elements, std::size_t width, typename Dims, typename Place>
HWY_NOINLINE void add_slab(const Pass& pass, Dims some, Place place) {
  constexpr std::size_t vector_bytes = lanes * Elements::bytes;
  PartMemory& memory = pass.memory;
  RunsAhead ahead = pass.ahead;
  for (std::size_t t = 0; t < pass.count; ++t) {
    const std::byte* values = pass.rows[t] + pass.dims * Elements::bytes;
#pragma GCC unroll 2
    for (std::size_t v = 0; v < width; ++v) {
      if (v * vector_bytes % line_bytes == 0) ahead.ask_line();
      hn::Store(some.load(values + v * vector_bytes), FloatTag(),
                memory.values + (t * width + v) * lanes);
    }
  }
  pass.ahead = ahead;
  for_blocks<sum_heads>(pass.first, pass.end, [&]<std::size_t heads>(std::size_t h) HWY_ATTR {
    add_values<heads, width>({.weights = memory.weights + h * piece_rows,
                              .stride = piece_rows,
                              .factors = memory.factors + h,
                              .seen = memory.seen + h,
                              .sums = memory.states + h,
                              .dim = some.dim},
                             memory.values, place);
  });
}

/// Adds values to the sums in the states.
template <typename Elements>
HWY_INLINE void add_laid_out(const Pass& pass) {
  constexpr std::size_t width = one_by_one ? 1 : 2;
  std::size_t dim = 0;
  for (; dim + width * lanes <= pass.dims; dim += width * lanes) {
    add_slab<Elements, width>(pass, WholeDims<Elements>{dim}, WholeSums());
  }
  for (; dim + lanes <= pass.dims; dim += lanes) {
    add_slab<Elements, 1>(pass, WholeDims<Elements>{dim}, WholeSums());
  }
  if (dim == pass.dims) return;
  const std::size_t rest = pass.dims - dim;
  add_slab<Elements, 1>(pass, LastDims<Elements>{dim, rest}, LastSums{rest});
}

HWY_INLINE void multiply_sums(float* sums, std::size_t count, float factor) {
  if (factor == 1) return;
  const FloatTag tag;
  for (std::size_t i = 0; i < count; i += lanes) {
    hn::Store(hn::Mul(hn::Load(tag, sums + i), hn::Set(tag, factor)), tag, sums + i);
  }
}

/// Adds values where they lie to the sums of few heads.
template <typename Elements>
HWY_NOINLINE void add_in_place(const Pass& pass) {
  PartMemory& memory = pass.memory;
  RunsAhead ahead = pass.ahead;
  const auto ask = [&] HWY_ATTR { ahead.ask_line(); };
  const std::size_t padded = align_up(pass.dims, lanes);
  for (std::size_t h = pass.first; h < pass.end; ++h) {
    multiply_sums(memory.sums_in_place(h, padded), padded, memory.factors[h]);
  }
  for (std::size_t h = pass.first; h < pass.end;) {
    std::size_t alike = 1;
    const std::size_t most = HWY_MIN(heads_in_place, pass.end - h);
    while (alike < most && memory.seen[h + alike] == memory.seen[h]) ++alike;
    const WeightedRows rows{.weights = memory.weights + h * piece_rows,
                            .weight_stride = piece_rows,
                            .rows = pass.rows,
                            .count = memory.seen[h],
                            .begin = pass.dims * Elements::bytes,
                            .numbers = pass.dims,
                            .sums = memory.sums_in_place(h, padded),
                            .sum_stride = padded};
    for_blocks<heads_in_place>(0, alike, [&]<std::size_t heads>(std::size_t i) HWY_ATTR {
      WeightedRows of = rows;
      of.weights += i * piece_rows;
      of.sums += i * padded;
      add_rows<Elements, heads>(of, ask);
    });
    h += alike;
  }
  pass.ahead = ahead;
}

/// Takes heads over rows. Head h sees memory.seen[h] of them; the last head sees some.
template <typename Elements, bool in_place>
HWY_INLINE void pass_over_rows(Pass pass) {
  constexpr std::size_t block = in_place ? heads_in_place : product_heads;
  while (pass.memory.seen[HWY_MIN(pass.first + block, pass.end) - 1] == 0) pass.first += block;
  multiply<Elements, block, in_place>(pass);
  weigh_heads(pass.memory, pass.first, pass.end);
  if constexpr (in_place) {
    add_in_place<Elements>(pass);
  } else {
    add_laid_out<Elements>(pass);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
