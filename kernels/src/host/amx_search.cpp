// Highway of this version has no tiles, so these are the CPU's own instructions.
#include "host/amx_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/prefetch.hpp"
#include "host/x86_instructions.hpp"

// All headers that the next one includes are included above: functions that other files share must
// not be compiled to these instructions.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

#include "host/search_in_tiles-inl.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t tile_bytes = AmxShape::tile_bytes;
constexpr std::size_t line_bytes = AmxShape::line_bytes;

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

/// The instructions are written in assembly, because a compiler's intrinsics take only literals as
/// numbers of tiles.
class CpuTiles {
 public:
  CpuTiles() noexcept { _tile_loadconfig(&whole_tiles); }
  ~CpuTiles() { _tile_release(); }
  CpuTiles(const CpuTiles&) = delete;
  CpuTiles& operator=(const CpuTiles&) = delete;

  template <std::size_t tile>
  [[gnu::always_inline]] void load(const std::byte* from, std::size_t stride) noexcept {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <std::size_t sums, std::size_t rows, std::size_t centroids>
  [[gnu::always_inline]] void add_products() noexcept {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(rows), "i"(centroids));
  }
  template <std::size_t tile>
  [[gnu::always_inline]] void store(TileSums& sums) noexcept {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(&sums), "r"(line_bytes), "i"(tile)
                 : "memory");
  }
  [[gnu::always_inline]] static void lower(Lanes& distance, const Lanes& found) noexcept {
    distance = _mm512_min_ps(found, distance);
  }
};

void search_on_cpu(const AmxSearch& search, std::uint32_t* labels) noexcept {
  CpuTiles tiles;
  search_in_tiles(tiles, search, labels);
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

Numbers beyond(const Numbers& origin, const Numbers& numbers) {
  return {_mm512_sub_ps(numbers.low, origin.low), _mm512_sub_ps(numbers.high, origin.high)};
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

void split_rows(const RowsToRound& rows, std::uint16_t* split) {
  const std::size_t dims = rows.dims;
  const std::size_t part_elements = align_up(dims, amx_dims);
  const float* row = rows.rows;
  for (std::size_t r = 0; r < rows.row_count; ++r, row += dims, split += 2 * part_elements) {
    for (std::size_t dim = 0; dim < dims; dim += amx_dims) {
      const std::size_t some = std::min(amx_dims, dims - dim);
      const Numbers numbers = beyond(load(rows.origin + dim, some), load(row + dim, some));
      const __m512i nearest = rounded(numbers);
      _mm512_store_si512(split + dim, nearest);
      _mm512_store_si512(split + part_elements + dim, rounded(without(numbers, nearest)));
    }
  }
}

/// Packs 32 dimensions of up to 16 centroids; `rests`, of what rounding left, may be null.
void pack_step(const DistanceTerms& terms, std::size_t dims, std::size_t dim, std::byte* packed,
               std::byte* rests) {
  __m512i nearest[amx_centroids];
  __m512i rest[amx_centroids];
  for (std::size_t c = 0; c < amx_centroids; ++c) {
    Numbers numbers{};
    if (c < terms.count) {
      numbers = load(terms.coefficients + c * dims + dim, std::min(amx_dims, dims - dim));
    }
    nearest[c] = rounded(numbers);
    if (rests != nullptr) rest[c] = rounded(without(numbers, nearest[c]));
  }
  store_columns(nearest, packed);
  if (rests != nullptr) store_columns(rest, rests);
}

void pack_block(const AmxShape& shape, const DistanceTerms& terms, std::byte* block) {
  auto* const addends = reinterpret_cast<float*>(block + shape.addends_offset());
  for (std::size_t c = 0; c < amx_centroids; ++c) {
    addends[c] = c < terms.count ? terms.addends[c] : nowhere.addend;
  }
  for (std::size_t step = 0; step < shape.steps(); ++step) {
    std::byte* const target = block + step * tile_bytes;
    std::byte* const rests = target + shape.steps() * tile_bytes;
    pack_step(terms, shape.dims, step * amx_dims, target,
              shape.numbers == AmxNumbers::split ? rests : nullptr);
  }
}

}  // namespace
}  // namespace terrace::kernels::host

HWY_POP_ATTRIBUTES

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

void split_amx_rows(const RowsToRound& rows, std::uint16_t* split) noexcept {
  split_rows(rows, split);
}

void pack_amx_centroids(const AmxShape& shape, const DistanceTerms& terms,
                        std::byte* packed) noexcept {
  for (std::size_t first = 0; first < terms.count; first += amx_centroids) {
    pack_block(shape,
               {.addends = terms.addends + first,
                .coefficients = terms.coefficients + first * shape.dims,
                .count = std::min(amx_centroids, terms.count - first)},
               packed + first / amx_centroids * shape.centroid_block_bytes());
  }
}

void search_amx(const AmxSearch& search, std::uint32_t* labels) noexcept {
  search_on_cpu(search, labels);
}

}  // namespace terrace::kernels::host

#else

namespace terrace::kernels::host {

bool has_amx_search() noexcept { return false; }
void split_amx_rows(const RowsToRound& /*rows*/, std::uint16_t* /*split*/) noexcept {}
void pack_amx_centroids(const AmxShape& /*shape*/, const DistanceTerms& /*terms*/,
                        std::byte* /*packed*/) noexcept {}
void search_amx(const AmxSearch& /*search*/, std::uint32_t* /*labels*/) noexcept {}

}  // namespace terrace::kernels::host

#endif
