// Products of queries and keys, for as many keys at a time as a vector has lanes. A vector holds
// four dimensions of some keys: so neither laying keys out nor adding lanes up takes much. Included
// once per target, as Highway's foreach_target.h demands.
#if defined(TERRACE_KERNELS_KEY_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_KEY_PRODUCTS_INL
#undef TERRACE_KERNELS_KEY_PRODUCTS_INL
#else
#define TERRACE_KERNELS_KEY_PRODUCTS_INL
#endif

#include <cstddef>

#include "host/rows_ahead-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t block_dims = 4;                     // dimensions of a key in a vector
constexpr std::size_t vector_keys = lanes / block_dims;   // keys in a vector
constexpr std::size_t key_vectors = lanes / vector_keys;  // for the same dimensions of all keys

/// Turns vectors of `lanes` dimensions of a key each into vectors of four dimensions of each key.
HWY_INLINE void transpose_blocks(Floats* v) {
  const FloatTag tag;
  if constexpr (vector_keys == 2) {
    const Floats first = hn::ConcatLowerLower(tag, v[1], v[0]);
    v[1] = hn::ConcatUpperUpper(tag, v[1], v[0]);
    v[0] = first;
  } else if constexpr (vector_keys == 4) {
    const Floats even[2] = {hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[1]), v[0]),
                            hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[3]), v[2])};
    const Floats odd[2] = {hn::OddEvenBlocks(v[1], hn::SwapAdjacentBlocks(v[0])),
                           hn::OddEvenBlocks(v[3], hn::SwapAdjacentBlocks(v[2]))};
    v[0] = hn::ConcatLowerLower(tag, even[1], even[0]);
    v[1] = hn::ConcatLowerLower(tag, odd[1], odd[0]);
    v[2] = hn::ConcatUpperUpper(tag, even[1], even[0]);
    v[3] = hn::ConcatUpperUpper(tag, odd[1], odd[0]);
  }
}

/// Which dimensions of rows a vector takes: all of its lanes from `dim` on, or what is left.
template <typename Elements>
struct WholeDims {
  std::size_t dim;

  HWY_INLINE Floats load(const std::byte* row) const {
    return Elements::load(row + dim * Elements::bytes);
  }
};
template <typename Elements>
struct LastDims {
  std::size_t dim;
  std::size_t count;

  HWY_INLINE Floats load(const std::byte* row) const {
    return load_tail<Elements>(row + dim * Elements::bytes, count);
  }
};

/// Reads dimensions of rows 0, 4, 8 and so on: blocks[b] has the four from some.dim + 4 * b on. A
/// line is asked for before each one that begins to be read.
template <typename Elements, typename Dims, typename Ahead>
HWY_INLINE void load_blocks(const std::byte* const* rows, Dims some, Ahead& ahead, Floats* blocks) {
  constexpr bool whole_lines = lanes * Elements::bytes >= line_bytes;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < vector_keys; ++i) {
    if (whole_lines || some.dim * Elements::bytes % line_bytes == 0) ahead.ask_line();
    blocks[i] = some.load(rows[i * key_vectors]);
  }
  transpose_blocks(blocks);
}

/// Lays the keys of vector v out as far as the dimensions `some`.
template <typename Elements, typename Dims>
HWY_INLINE void lay_out_dims(const std::byte* const* rows, std::size_t v, Dims some,
                             float* HWY_RESTRICT to) {
  Floats blocks[vector_keys];
  NothingAhead nothing;
  load_blocks<Elements>(rows + v, some, nothing, blocks);
#pragma GCC unroll 4
  for (std::size_t b = 0; b < vector_keys; ++b) {
    hn::Store(blocks[b], FloatTag(), to + (some.dim + b * block_dims + v) * lanes);
  }
}

/// Lays `lanes` keys out as [dims / 4, 4, lanes], dims being rounded up to whole vectors.
template <typename Elements>
HWY_NOINLINE void lay_out_keys(const std::byte* const* rows, std::size_t dims,
                               float* HWY_RESTRICT to) {
  for (std::size_t v = 0; v < key_vectors; ++v) {
    std::size_t dim = 0;
    for (; dim + lanes <= dims; dim += lanes) {
      lay_out_dims<Elements>(rows, v, WholeDims<Elements>{dim}, to);
    }
    if (dim < dims) lay_out_dims<Elements>(rows, v, LastDims<Elements>{dim, dims - dim}, to);
  }
}

/// Adds up the lanes of each key, for each query. The order of a product's additions is the same in
/// all functions here: every fourth dimension, then the four sums.
template <std::size_t queries>
HWY_INLINE void store_products(const Floats* sums, float* HWY_RESTRICT to, std::size_t stride) {
#pragma GCC unroll 8
  for (std::size_t q = 0; q < queries; ++q) {
    const Floats* of = sums + q * key_vectors;
    hn::StoreU(sums_of_blocks(of[0], of[1], of[2], of[3]), FloatTag(), to + q * stride);
  }
}

/// Writes the products of queries, which lie as [dims / 4, queries, 4], and keys that are laid out:
/// [queries, stride]. dims is a multiple of `lanes`.
template <std::size_t queries, typename Ahead>
HWY_NOINLINE void multiply_laid_out(const float* HWY_RESTRICT query, const float* HWY_RESTRICT keys,
                                    std::size_t dims, Ahead& asked, float* HWY_RESTRICT to,
                                    std::size_t stride) {
  const FloatTag tag;
  Ahead ahead = asked;
  Floats sums[queries * key_vectors];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < queries * key_vectors; ++i) sums[i] = hn::Zero(tag);
  for (std::size_t dim = 0; dim < dims; dim += block_dims) {
    ahead.ask_line();
    Floats factors[queries];
#pragma GCC unroll 8
    for (std::size_t q = 0; q < queries; ++q) {
      factors[q] = hn::LoadDup128(tag, query + dim * queries + q * block_dims);
    }
#pragma GCC unroll 4
    for (std::size_t v = 0; v < key_vectors; ++v) {
      const Floats key = hn::Load(tag, keys + (dim + v) * lanes);
#pragma GCC unroll 8
      for (std::size_t q = 0; q < queries; ++q) {
        sums[q * key_vectors + v] = hn::MulAdd(factors[q], key, sums[q * key_vectors + v]);
      }
    }
  }
  store_products<queries>(sums, to, stride);
  asked = ahead;
}

/// Adds products in the dimensions `some` to `sums`, [queries, 4].
template <typename Elements, std::size_t queries, typename Dims>
HWY_INLINE void add_products(const float* HWY_RESTRICT query, const std::byte* const* rows,
                             Dims some, RunsAhead& ahead, Floats* sums) {
  constexpr std::size_t width = 2;  // vectors of keys that share the loads of a query
  const float* factors = query + some.dim * queries;
#pragma GCC unroll 2
  for (std::size_t first = 0; first < key_vectors; first += width) {
    Floats blocks[width][vector_keys];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < width; ++v) {
      load_blocks<Elements>(rows + first + v, some, ahead, blocks[v]);
    }
#pragma GCC unroll 16
    for (std::size_t i = 0; i < vector_keys * queries; ++i) {
      const Floats factor = hn::LoadDup128(FloatTag(), factors + i * block_dims);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < width; ++v) {
        Floats& sum = sums[i % queries * key_vectors + first + v];
        sum = hn::MulAdd(factor, blocks[v][i / queries], sum);
      }
    }
  }
}

/// As multiply_laid_out, with `lanes` keys of `dims` dimensions at their places: for so few queries
/// that laying keys out does not pay.
template <typename Elements, std::size_t queries>
HWY_NOINLINE void multiply_in_place(const float* HWY_RESTRICT query, const std::byte* const* rows,
                                    std::size_t dims, RunsAhead& asked, float* HWY_RESTRICT to,
                                    std::size_t stride) {
  RunsAhead ahead = asked;
  Floats sums[queries * key_vectors];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < queries * key_vectors; ++i) sums[i] = hn::Zero(FloatTag());
  std::size_t dim = 0;
  for (; dim + lanes <= dims; dim += lanes) {
    add_products<Elements, queries>(query, rows, WholeDims<Elements>{dim}, ahead, sums);
  }
  if (dim < dims) {
    const LastDims<Elements> last{dim, dims - dim};
    add_products<Elements, queries>(query, rows, last, ahead, sums);
  }
  store_products<queries>(sums, to, stride);
  asked = ahead;
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
