// The inner loops of clustering and coding: nearest centroids, and means of rows.
//
// Centroids are packed in tiles of 16, so that one loaded vector serves several centroids and a
// tile fits into the first cache: [1 + dims, 16] f32, first what is added to each distance, then
// the coefficients of each dimension. The distance of a row is addend + sum of row * coefficient:
//   l2      |c|^2 - 2 x.c   = |x - c|^2 - |x|^2
//   cosine  -x.c / |c|      = -|x| cos(x, c)
// which rank centroids as the metric does. Places without a centroid are infinitely far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "terrace/kernels/kmeans.hpp"

namespace terrace::kernels::host {

constexpr std::size_t tile_centroids = 16;

/// Returns the tiles that centroids fill.
constexpr std::size_t tile_count(std::size_t centroids) noexcept {
  return (centroids + tile_centroids - 1) / tile_centroids;
}

/// Returns the floats of one tile.
constexpr std::size_t tile_floats(std::size_t dims) noexcept { return (1 + dims) * tile_centroids; }

/// Numbers of a centroid's place in a tile: one to add, and one that multiplies its elements.
struct CentroidTerms {
  float addend;
  float factor;
};

/// The terms of a place without a centroid.
inline constexpr CentroidTerms nowhere{std::numeric_limits<float>::infinity(), 0};

/// Returns the dot product, in partial sums that follow from `dims` alone.
float dot(const float* a, const float* b, std::size_t dims) noexcept;

CentroidTerms terms_of(const float* centroid, std::size_t dims, Metric metric) noexcept;

/// The terms that distances to centroids are made of.
struct DistanceTerms {
  const float* addends = nullptr;       ///< [count]
  const float* coefficients = nullptr;  ///< [count, dims]
  std::size_t count = 0;
};

/// Packs centroids [count <= 16, dims] into a tile.
void pack_tile(const float* centroids, std::size_t count, std::size_t dims, Metric metric,
               float* tile) noexcept;

constexpr std::size_t search_rows_max = 192;  // a multiple of what is searched at once; fits L2

/// The search for the nearest centroids of a block of rows. The nearest so far is kept lane by lane
/// of the vectors of distances, so that a row is looked at across lanes once, not once a tile.
struct NearestSearch {
  const float* rows = nullptr;  ///< [row_count <= search_rows_max, dims]
  std::size_t row_count = 0;
  std::size_t dims = 0;
  alignas(64) std::array<float, search_rows_max * tile_centroids> distances;
  alignas(64) std::array<std::uint32_t, search_rows_max * tile_centroids> labels;
};

/// Sets all distances to infinity and all labels to 0.
void begin_search(NearestSearch& search) noexcept;

/// Lowers distances to those of adjacent tiles; the first centroid has label `first`. Tiles come in
/// rising order, so that ties go to the lower label.
void search_tiles(NearestSearch& search, const float* tiles, std::size_t tile_count,
                  std::uint32_t first) noexcept;

/// Writes the labels of the nearest centroids: [row_count].
void end_search(const NearestSearch& search, std::uint32_t* labels) noexcept;

/// Writes 1 for each of the rows [row_count, dims] that is `clustered_below`, else 0.
void find_clustered(const float* rows, std::size_t row_count, std::size_t dims,
                    std::uint8_t* clustered) noexcept;

/// Returns the distance of a row and a centroid as the metric has it, never negative: |x - c|^2
/// or 1 - cos(x, c).
float exact_distance(const float* row, const float* centroid, std::size_t dims,
                     Metric metric) noexcept;

struct LabelledRows {
  const void* rows = nullptr;  ///< [row_count, row_elements] f32 or bf16
  std::size_t row_count = 0;
  std::size_t row_elements = 0;  ///< the first `dims` count
  std::size_t dims = 0;
  const std::uint32_t* labels = nullptr;   ///< [row_count]
  const std::uint8_t* admitted = nullptr;  ///< [row_count]; 0 = left out
};

struct RowSums {
  float* sums = nullptr;            ///< [labels, dims]
  std::uint32_t* counts = nullptr;  ///< [labels]
};

/// Adds each row to the sum of its label and counts it there, in their order.
void add_f32_rows(const LabelledRows& rows, const RowSums& target) noexcept;
void add_bf16_rows(const LabelledRows& rows, const RowSums& target) noexcept;

}  // namespace terrace::kernels::host
