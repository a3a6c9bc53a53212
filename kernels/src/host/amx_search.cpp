// Highway of this version has no tiles, so these are the CPU's own instructions.
#include "host/amx_search.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __x86_64__
#include <cpuid.h>

// Some of these functions start from a variable that they leave uninitialized on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <sys/syscall.h>
#include <unistd.h>

#include "host/bf16_search.hpp"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

#include "host/search_in_tiles-inl.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t tile_bytes = AmxShape::tile_bytes;
constexpr std::size_t line_bytes = 64;

/// All eight tiles are whole: 16 lines of 64 bytes. Constant, because what configures tiles does
/// not tell the compiler how much of it is read.
struct TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_line = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t line_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t lines[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);
alignas(64) constexpr TileConfiguration whole_tiles;

/// Tiles 0 to 3 hold sums, two for each turn, 4 rows, 6 and 7 centroids.
class CpuTiles {
 public:
  CpuTiles() noexcept { _tile_loadconfig(&whole_tiles); }
  ~CpuTiles() { _tile_release(); }
  CpuTiles(const CpuTiles&) = delete;
  CpuTiles& operator=(const CpuTiles&) = delete;

  // Tiles' numbers must be literals.
  template <int turn>
  [[gnu::always_inline]] void begin() noexcept {
    if constexpr (turn == 0) {
      _tile_zero(0);
      _tile_zero(1);
    } else {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  template <int turn>
  [[gnu::always_inline]] void add(const std::byte* coefficients, const std::byte* rows,
                                  std::size_t steps) noexcept {
    for (std::size_t step = 0; step < steps; ++step) {
      _tile_loadd(4, rows + step * tile_bytes, line_bytes);
      _tile_loadd(6, coefficients + 2 * step * tile_bytes, line_bytes);
      _tile_loadd(7, coefficients + (2 * step + 1) * tile_bytes, line_bytes);
      if constexpr (turn == 0) {
        _tile_dpbf16ps(0, 6, 4);
        _tile_dpbf16ps(1, 7, 4);
      } else {
        _tile_dpbf16ps(2, 6, 4);
        _tile_dpbf16ps(3, 7, 4);
      }
    }
  }
  template <int turn>
  [[gnu::always_inline]] void store(TileSums& sums) noexcept {
    if constexpr (turn == 0) {
      _tile_stored(0, sums.of[0], line_bytes);
      _tile_stored(1, sums.of[1], line_bytes);
    } else {
      _tile_stored(2, sums.of[0], line_bytes);
      _tile_stored(3, sums.of[1], line_bytes);
    }
  }
};

void search_on_cpu(const AmxSearch& search, std::uint32_t* labels) noexcept {
  CpuTiles tiles;
  SearchInTiles(tiles, search).run(labels);
}

/// 32 f32 numbers in order.
struct Numbers {
  __m512 low;
  __m512 high;
};

Numbers load(const float* source, std::size_t count) {
  const std::uint64_t some = (std::uint64_t{1} << count) - 1;
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(some), source),
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(some >> 16), source + 16)};
}

__m512i rounded(const Numbers& numbers) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(numbers.high, numbers.low));
}

__m512 widened(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Returns what rounding left.
Numbers without(const Numbers& numbers, __m512i rounded) {
  return {_mm512_sub_ps(numbers.low, widened(_mm512_castsi512_si256(rounded))),
          _mm512_sub_ps(numbers.high, widened(_mm512_extracti64x4_epi64(rounded, 1)))};
}

/// Makes the i-th of 32 bits of line j the j-th of line i.
[[gnu::always_inline]] inline void transpose(__m512i (&lines)[16]) {
  __m512i pairs[16];
  __m512i fours[16];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(lines[i], lines[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(lines[i], lines[i + 1]);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512i even_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xdd);
    lines[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    lines[4 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    lines[8 + i] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    lines[12 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

[[gnu::always_inline]] inline void store_columns(__m512i (&lines)[16], std::byte* target) {
  transpose(lines);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) _mm512_store_si512(target + i * line_bytes, lines[i]);
}

/// Packs blocks of 16 rows, 32 dimensions a step: `read` gives those of a row, line by line of what
/// is to be transposed, for each part of the numbers.
template <std::size_t parts, typename Read>
[[gnu::always_inline]] inline void pack_rows(std::size_t dims, std::size_t row_count,
                                             std::byte* packed, Read read) {
  const std::size_t steps = divide_up(dims, amx_dims);
  for (std::size_t row = 0; row < row_count;
       row += amx_rows, packed += parts * steps * tile_bytes) {
    for (std::size_t step = 0; step < steps; ++step) {
      const std::size_t dim = step * amx_dims;
      __m512i lines[parts][16];
#pragma GCC unroll 16
      for (std::size_t r = 0; r < amx_rows; ++r) {
        read(std::min(row + r, row_count - 1), dim, std::min(amx_dims, dims - dim), r, lines);
      }
      for (std::size_t part = 0; part < parts; ++part) {
        store_columns(lines[part], packed + (part * steps + step) * tile_bytes);
      }
    }
  }
}

void pack_rounded_rows(std::size_t dims, const std::uint16_t* rows, std::size_t row_count,
                       std::byte* packed) {
  const std::size_t elements = bf16_row_elements(dims);
  pack_rows<1>(dims, row_count, packed,
               [&](std::size_t row, std::size_t dim, std::size_t count, std::size_t place,
                   __m512i(&lines)[1][16]) __attribute__((always_inline)) {
                 const auto some = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
                 lines[0][place] = _mm512_maskz_loadu_epi16(some, rows + row * elements + dim);
               });
}

void pack_split_rows(std::size_t dims, const float* rows, std::size_t row_count,
                     std::byte* packed) {
  pack_rows<2>(dims, row_count, packed,
               [&](std::size_t row, std::size_t dim, std::size_t count, std::size_t place,
                   __m512i(&lines)[2][16]) __attribute__((always_inline)) {
                 const Numbers numbers = load(rows + row * dims + dim, count);
                 lines[0][place] = rounded(numbers);
                 lines[1][place] = rounded(without(numbers, lines[0][place]));
               });
}

void pack_centroid(const AmxShape& shape, const float* centroid, const CentroidTerms& terms,
                   std::byte* block, std::size_t place) {
  std::byte* const line = block + place * line_bytes;
  reinterpret_cast<float*>(block + shape.addends_offset())[place] = terms.addend;
  const __m512 factor = _mm512_set1_ps(terms.factor);
  for (std::size_t step = 0; step < shape.steps(); ++step) {
    std::byte* const target = line + step * 2 * tile_bytes;
    Numbers numbers{};
    if (centroid != nullptr) {
      const std::size_t dim = step * amx_dims;
      numbers = load(centroid + dim, std::min(amx_dims, shape.dims - dim));
    }
    numbers = {_mm512_mul_ps(numbers.low, factor), _mm512_mul_ps(numbers.high, factor)};
    const __m512i nearest = rounded(numbers);
    _mm512_store_si512(target, nearest);
    if (shape.numbers == AmxNumbers::split) {
      _mm512_store_si512(target + shape.steps() * 2 * tile_bytes,
                         rounded(without(numbers, nearest)));
    }
  }
}

}  // namespace
}  // namespace terrace::kernels::host

#pragma GCC pop_options

namespace terrace::kernels::host {
namespace {

bool cpu_has_tiles() noexcept {
  constexpr unsigned bf16_products = 1U << 22;
  constexpr unsigned tiles = 1U << 24;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & bf16_products) != 0 && (d & tiles) != 0;
}

/// The state of tiles is large: Linux saves it only for processes that asked.
bool system_lets_us() noexcept {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

bool has_amx_search() noexcept {
  static const bool has = has_bf16_search() && cpu_has_tiles() && system_lets_us();
  return has;
}

void pack_amx_rounded_rows(std::size_t dims, const std::uint16_t* rows, std::size_t row_count,
                           std::byte* packed) noexcept {
  pack_rounded_rows(dims, rows, row_count, packed);
}

void pack_amx_split_rows(std::size_t dims, const float* rows, std::size_t row_count,
                         std::byte* packed) noexcept {
  pack_split_rows(dims, rows, row_count, packed);
}

void pack_amx_centroids(const AmxShape& shape, const float* centroids, std::size_t count,
                        Metric metric, std::byte* packed) noexcept {
  for (std::size_t c = 0; c < align_up(count, amx_centroids); ++c) {
    const float* const centroid = c < count ? centroids + c * shape.dims : nullptr;
    const CentroidTerms terms =
        centroid != nullptr ? terms_of(centroid, shape.dims, metric) : nowhere;
    pack_centroid(shape, centroid, terms, packed + c / amx_centroids * shape.centroid_block_bytes(),
                  c % amx_centroids);
  }
}

void search_amx(const AmxSearch& search, std::uint32_t* labels) noexcept {
  search_on_cpu(search, labels);
}

}  // namespace terrace::kernels::host

#else

namespace terrace::kernels::host {

bool has_amx_search() noexcept { return false; }
void pack_amx_rounded_rows(std::size_t /*dims*/, const std::uint16_t* /*rows*/,
                           std::size_t /*row_count*/, std::byte* /*packed*/) noexcept {}
void pack_amx_split_rows(std::size_t /*dims*/, const float* /*rows*/, std::size_t /*row_count*/,
                         std::byte* /*packed*/) noexcept {}
void pack_amx_centroids(const AmxShape& /*shape*/, const float* /*centroids*/,
                        std::size_t /*count*/, Metric /*metric*/, std::byte* /*packed*/) noexcept {}
void search_amx(const AmxSearch& /*search*/, std::uint32_t* /*labels*/) noexcept {}

}  // namespace terrace::kernels::host

#endif
