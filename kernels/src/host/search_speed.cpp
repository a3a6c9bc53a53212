#include "host/search_speed.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "host/amx_search.hpp"
#include "host/bf16_search.hpp"
#include "host/centroid_tiles.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t dims = 64;
constexpr std::size_t row_count = 64;  // little on the stack: the caller may be any thread
constexpr std::size_t tiles = tile_count(bf16_tile_centroids);
static_assert(row_count <= bf16_tile_centroids, "the rows are the first of the centroids");
static_assert(row_count % amx_rows == 0 && dims % amx_dims == 0);

template <typename Run>
double fastest_of_some(Run run) {
  using Clock = std::chrono::steady_clock;
  Clock::duration best = Clock::duration::max();
  for (int i = 0; i < 8; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, Clock::now() - begin);
  }
  return std::chrono::duration<double>(best).count();
}

}  // namespace

FasterSearches measure_searches() noexcept {
  if (!has_bf16_search()) return {};
  alignas(64) std::array<float, bf16_tile_centroids * dims> centroids;
  alignas(64) std::array<std::uint16_t, row_count * dims> rounded;
  alignas(64) std::array<float, tiles * tile_floats(dims)> f32_tiles;
  alignas(64) std::array<std::byte, bf16_tile_bytes(dims)> bf16_tile;
  centroids.fill(1);
  for (std::size_t i = 0; i < tiles; ++i) {
    pack_tile(&centroids[i * tile_centroids * dims], tile_centroids, dims, Metric::l2,
              &f32_tiles[i * tile_floats(dims)]);
  }
  rows_to_bf16(centroids.data(), row_count, dims, rounded.data());
  pack_bf16_tile(centroids.data(), bf16_tile_centroids, dims, Metric::l2, bf16_tile.data());
  const Bf16Tile tile{rounded.data(), bf16_tile.data(), bf16_tile_centroids, 0};
  NearestSearch search;
  search.rows = centroids.data();
  search.row_count = row_count;
  search.dims = dims;
  begin_search(search);
  // Between the CPUs there are a measurement may not waver.
  constexpr double clearly = 1.3;
  const double in_f32 = fastest_of_some([&] { search_tiles(search, f32_tiles.data(), tiles, 0); });
  const double in_bf16 = fastest_of_some([&] { search_bf16_tile(search, tile); });
  FasterSearches faster{.bf16 = in_bf16 * clearly < in_f32};
  if (has_amx_search()) {
    const double in_amx = fastest_of_some([&] { search_amx_tile(search, tile); });
    faster.amx = in_amx * clearly < std::min(in_f32, in_bf16);
  }
  return faster;
}

}  // namespace terrace::kernels::host
