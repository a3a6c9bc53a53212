// Highway of this version has no tiles, so these are the CPU's own instructions. No machine this
// was written on has them: tests/kernels/amx_search_test.cpp runs the search on tiles of its own.
#include "host/amx_search.hpp"

#include <cstdint>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

#include "host/search_in_tiles-inl.hpp"

namespace terrace::kernels::host {
namespace {

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

/// Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 centroids.
class CpuTiles {
 public:
  CpuTiles() noexcept { _tile_loadconfig(&whole_tiles); }
  ~CpuTiles() { _tile_release(); }
  CpuTiles(const CpuTiles&) = delete;
  CpuTiles& operator=(const CpuTiles&) = delete;

  [[gnu::always_inline]] void begin(const float* addends) noexcept {
    // Each line of a tile is the same.
    _tile_loadd(0, addends, 0);
    _tile_loadd(1, addends + 16, 0);
    _tile_loadd(2, addends, 0);
    _tile_loadd(3, addends + 16, 0);
  }
  [[gnu::always_inline]] void add(const std::uint16_t* rows, std::size_t row_bytes,
                                  const std::byte* coefficients, std::size_t line_bytes) noexcept {
    _tile_loadd(4, rows, row_bytes);
    _tile_loadd(5, reinterpret_cast<const std::byte*>(rows) + 16 * row_bytes, row_bytes);
    _tile_loadd(6, coefficients, line_bytes);
    _tile_loadd(7, coefficients + 64, line_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  [[gnu::always_inline]] void store(TileSums& sums) noexcept {
    _tile_stored(0, sums.of[0][0], 64);
    _tile_stored(1, sums.of[0][1], 64);
    _tile_stored(2, sums.of[1][0], 64);
    _tile_stored(3, sums.of[1][1], 64);
  }
};

void search_on_cpu(NearestSearch& search, const Bf16Tile& tile) noexcept {
  CpuTiles tiles;
  search_in_tiles(tiles, search, tile);
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

void search_amx_tile(NearestSearch& search, const Bf16Tile& tile) noexcept {
  search_on_cpu(search, tile);
}

}  // namespace terrace::kernels::host

#else

namespace terrace::kernels::host {

bool has_amx_search() noexcept { return false; }
void search_amx_tile(NearestSearch& /*search*/, const Bf16Tile& /*tile*/) noexcept {}

}  // namespace terrace::kernels::host

#endif
