// Highway of this version has no sums of bf16 products, so these are the CPU's own instructions.
#include "host/bf16_search.hpp"

#include <algorithm>
#include <cstring>

#include "terrace/core/dtype.hpp"

#ifdef __x86_64__
#include "host/x86_instructions.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t vector_lanes = 16;
constexpr std::size_t tile_vectors = bf16_tile_centroids / vector_lanes;
constexpr std::size_t sums_at_once = 24;  // leave registers for the operands

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")

/// Rounds what up to 16 elements are beyond their origin to the nearest.
void round_elements(const float* source, const float* origin, std::size_t count,
                    std::uint16_t* target) {
  const auto some = static_cast<__mmask16>((1U << count) - 1);
  const __m512 beyond =
      _mm512_sub_ps(_mm512_maskz_loadu_ps(some, source), _mm512_maskz_loadu_ps(some, origin));
  const __m256bh rounded = _mm512_cvtneps_pbh(beyond);
  _mm256_mask_storeu_epi16(target, some, reinterpret_cast<__m256i>(rounded));
}

/// Searches the first `vectors` of a tile for `row_count` rows at once.
template <std::size_t row_count, std::size_t vectors>
[[gnu::always_inline]] inline void search_rows(NearestSearch& search, std::size_t begin,
                                               const Bf16Tile& tile) {
  const std::size_t pairs = bf16_row_elements(search.dims) / 2;
  const std::byte* const row = reinterpret_cast<const std::byte*>(tile.rows + begin * pairs * 2);
  __m512 sums[row_count][vectors];
#pragma GCC unroll 24
  for (std::size_t r = 0; r < row_count; ++r) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) sums[r][v] = _mm512_load_ps(tile.data + v * 64);
  }
  const std::byte* coefficients = tile.data + tile_vectors * 64;
  for (std::size_t pair = 0; pair < pairs; ++pair, coefficients += tile_vectors * 64) {
    __m512bh of_pair[vectors];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      of_pair[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(coefficients + v * 64));
    }
#pragma GCC unroll 24
    for (std::size_t r = 0; r < row_count; ++r) {
      std::int32_t both;
      std::memcpy(&both, row + (r * pairs + pair) * 4, sizeof both);
      const auto elements = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
#pragma GCC unroll 4
      for (std::size_t v = 0; v < vectors; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], elements, of_pair[v]);
      }
    }
  }
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 24
  for (std::size_t r = 0; r < row_count; ++r) {
    float* const distances = &search.distances[(begin + r) * vector_lanes];
    std::uint32_t* const labels = &search.labels[(begin + r) * vector_lanes];
    __m512 least = _mm512_load_ps(distances);
    __m512i nearest = _mm512_load_si512(labels);
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      const __mmask16 nearer = _mm512_cmp_ps_mask(sums[r][v], least, _CMP_LT_OQ);
      const auto base = static_cast<int>(tile.first + v * vector_lanes);
      least = _mm512_mask_mov_ps(least, nearer, sums[r][v]);
      nearest = _mm512_mask_add_epi32(nearest, nearer, lane, _mm512_set1_epi32(base));
    }
    _mm512_store_ps(distances, least);
    _mm512_store_si512(labels, nearest);
  }
}

template <std::size_t vectors>
void search_all(NearestSearch& search, const Bf16Tile& tile) {
  constexpr std::size_t rows_at_once = sums_at_once / vectors;
  std::size_t row = 0;
  for (; row + rows_at_once <= search.row_count; row += rows_at_once) {
    search_rows<rows_at_once, vectors>(search, row, tile);
  }
  for (; row < search.row_count; ++row) search_rows<1, vectors>(search, row, tile);
}

HWY_POP_ATTRIBUTES

}  // namespace

bool has_bf16_search() noexcept {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512bf16") != 0;
}

void rows_to_bf16(const RowsToRound& rows, std::size_t elements, std::uint16_t* rounded) noexcept {
  const std::size_t dims = rows.dims;
  for (std::size_t r = 0; r < rows.row_count; ++r) {
    const float* const row = rows.rows + r * dims;
    std::uint16_t* const target = rounded + r * elements;
    for (std::size_t i = 0; i < dims; i += vector_lanes) {
      round_elements(row + i, rows.origin + i, std::min(vector_lanes, dims - i), target + i);
    }
    std::fill(target + dims, target + elements, std::uint16_t{0});
  }
}

void pack_bf16_tile(const DistanceTerms& terms, std::size_t dims, std::byte* tile) noexcept {
  auto* const addends = reinterpret_cast<float*>(tile);
  auto* const coefficients = reinterpret_cast<std::uint16_t*>(tile + tile_vectors * 64);
  std::fill_n(coefficients, bf16_row_elements(dims) * bf16_tile_centroids, std::uint16_t{0});
  for (std::size_t c = 0; c < bf16_tile_centroids; ++c) {
    const bool is_one = c < terms.count;
    addends[c] = is_one ? terms.addends[c] : nowhere.addend;
    for (std::size_t i = 0; is_one && i < dims; ++i) {
      coefficients[(i / 2 * bf16_tile_centroids + c) * 2 + i % 2] =
          f32_to_bf16(terms.coefficients[c * dims + i]);
    }
  }
}

void search_bf16_tile(NearestSearch& search, const Bf16Tile& tile) noexcept {
  if (tile.count > 3 * vector_lanes) return search_all<4>(search, tile);
  if (tile.count > 2 * vector_lanes) return search_all<3>(search, tile);
  if (tile.count > vector_lanes) return search_all<2>(search, tile);
  search_all<1>(search, tile);
}

}  // namespace terrace::kernels::host

#else

namespace terrace::kernels::host {

bool has_bf16_search() noexcept { return false; }
void rows_to_bf16(const RowsToRound& /*rows*/, std::size_t /*elements*/,
                  std::uint16_t* /*rounded*/) noexcept {}
void pack_bf16_tile(const DistanceTerms& /*terms*/, std::size_t /*dims*/,
                    std::byte* /*tile*/) noexcept {}
void search_bf16_tile(NearestSearch& /*search*/, const Bf16Tile& /*tile*/) noexcept {}

}  // namespace terrace::kernels::host

#endif
