#include "host/centroid_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/prefetch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/centroid_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t tile_vectors = tile_centroids / lanes;
constexpr std::size_t rows_at_once = 12 / tile_vectors;  // 12 sums leave registers for the operands

using Labels = hn::Vec<hn::RebindToUnsigned<FloatTag>>;

/// Searches a tile for `row_count` rows at once.
template <std::size_t row_count>
HWY_INLINE void search_rows(NearestSearch& search, std::size_t begin, const float* tile,
                            const Labels* tile_labels) {
  const FloatTag tag;
  const hn::RebindToUnsigned<FloatTag> label_tag;
  const std::size_t dims = search.dims;
  const float* rows = search.rows + begin * dims;
  Floats sums[row_count * tile_vectors];
#pragma GCC unroll 12
  for (std::size_t i = 0; i < row_count * tile_vectors; ++i) {
    sums[i] = hn::LoadU(tag, tile + i % tile_vectors * lanes);
  }
  for (std::size_t dim = 0; dim < dims; ++dim) {
    Floats coefficients[tile_vectors];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < tile_vectors; ++v) {
      coefficients[v] = hn::LoadU(tag, tile + (1 + dim) * tile_centroids + v * lanes);
    }
#pragma GCC unroll 12
    for (std::size_t r = 0; r < row_count; ++r) {
      const Floats element = hn::Set(tag, rows[r * dims + dim]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < tile_vectors; ++v) {
        sums[r * tile_vectors + v] =
            hn::MulAdd(element, coefficients[v], sums[r * tile_vectors + v]);
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t r = 0; r < row_count; ++r) {
    float* distances = &search.distances[(begin + r) * lanes];
    std::uint32_t* labels = &search.labels[(begin + r) * lanes];
    Floats least = hn::LoadU(tag, distances);
    Labels nearest = hn::LoadU(label_tag, labels);
#pragma GCC unroll 4
    for (std::size_t v = 0; v < tile_vectors; ++v) {
      const Floats distance = sums[r * tile_vectors + v];
      const auto nearer = hn::Lt(distance, least);
      least = hn::IfThenElse(nearer, distance, least);
      nearest = hn::IfThenElse(hn::RebindMask(label_tag, nearer), tile_labels[v], nearest);
    }
    hn::StoreU(least, tag, distances);
    hn::StoreU(nearest, label_tag, labels);
  }
}

void search_tile_of(NearestSearch& search, const float* tile, std::uint32_t first) {
  Labels labels[tile_vectors];
  for (std::size_t v = 0; v < tile_vectors; ++v) {
    labels[v] =
        hn::Iota(hn::RebindToUnsigned<FloatTag>(), first + static_cast<std::uint32_t>(v * lanes));
  }
  std::size_t row = 0;
  for (; row + rows_at_once <= search.row_count; row += rows_at_once) {
    search_rows<rows_at_once>(search, row, tile, labels);
  }
  for (; row < search.row_count; ++row) search_rows<1>(search, row, tile, labels);
}

/// Writes for each row the lowest label of those at the least distance.
void nearest_labels(const NearestSearch& search, std::uint32_t* labels) {
  const FloatTag tag;
  const hn::RebindToUnsigned<FloatTag> label_tag;
  const Labels none = hn::Set(label_tag, std::numeric_limits<std::uint32_t>::max());
  for (std::size_t row = 0; row < search.row_count; ++row) {
    const Floats distances = hn::LoadU(tag, &search.distances[row * lanes]);
    const Labels candidates = hn::LoadU(label_tag, &search.labels[row * lanes]);
    const auto least = hn::Eq(distances, hn::MinOfLanes(tag, distances));
    const Labels at_least = hn::IfThenElse(hn::RebindMask(label_tag, least), candidates, none);
    labels[row] = hn::GetLane(hn::MinOfLanes(label_tag, at_least));
  }
}

bool is_finite_row(const float* row, std::size_t dims) {
  const FloatTag tag;
  Floats zeros = hn::Zero(tag);  // x * 0 is 0, or NaN for what is not finite
  float tail = 0;
  std::size_t i = 0;
  for (; i + lanes <= dims; i += lanes) {
    zeros = hn::MulAdd(hn::LoadU(tag, row + i), hn::Zero(tag), zeros);
  }
  for (; i < dims; ++i) tail += row[i] * 0.0F;
  return sum_of_lanes(zeros) + tail == 0.0F;
}

constexpr std::size_t mean_block = 256;  // rows summed before their sum is added to the whole
constexpr std::size_t mean_width = 8;    // vectors of sums held in registers
constexpr std::size_t mean_ahead = 8;    // rows prefetched

/// Sums `width` vectors of dimensions from `dim` on over members.
template <std::size_t width>
HWY_INLINE void sum_slab(const float* rows, std::size_t dims, std::size_t dim,
                         const std::uint32_t* members, std::size_t count, float scale,
                         float* mean) {
  const FloatTag tag;
  Floats whole[width];
#pragma GCC unroll 8
  for (std::size_t v = 0; v < width; ++v) whole[v] = hn::Zero(tag);
  for (std::size_t begin = 0; begin < count; begin += mean_block) {
    const std::size_t end = HWY_MIN(count, begin + mean_block);
    Floats block[width];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < width; ++v) block[v] = hn::Zero(tag);
    for (std::size_t m = begin; m < end; ++m) {
      const float* ahead = rows + members[HWY_MIN(m + mean_ahead, count - 1)] * dims + dim;
      const float* row = rows + members[m] * dims + dim;
      prefetch(reinterpret_cast<const std::byte*>(ahead), width * lanes * sizeof(float));
#pragma GCC unroll 8
      for (std::size_t v = 0; v < width; ++v) {
        block[v] = hn::Add(block[v], hn::LoadU(tag, row + v * lanes));
      }
    }
#pragma GCC unroll 8
    for (std::size_t v = 0; v < width; ++v) whole[v] = hn::Add(whole[v], block[v]);
  }
#pragma GCC unroll 8
  for (std::size_t v = 0; v < width; ++v) {
    hn::StoreU(hn::Mul(whole[v], hn::Set(tag, scale)), tag, mean + dim + v * lanes);
  }
}

void mean_of(const float* rows, std::size_t dims, const std::uint32_t* members, std::size_t count,
             float* mean) {
  const float scale = 1.0F / static_cast<float>(count);
  std::size_t dim = 0;
  for (; dim + mean_width * lanes <= dims; dim += mean_width * lanes) {
    sum_slab<mean_width>(rows, dims, dim, members, count, scale, mean);
  }
  for (; dim + lanes <= dims; dim += lanes) {
    sum_slab<1>(rows, dims, dim, members, count, scale, mean);
  }
  for (; dim < dims; ++dim) {
    float whole = 0;
    for (std::size_t begin = 0; begin < count; begin += mean_block) {
      float block = 0;
      for (std::size_t m = begin; m < HWY_MIN(count, begin + mean_block); ++m) {
        block += rows[members[m] * dims + dim];
      }
      whole += block;
    }
    mean[dim] = whole * scale;
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(search_tile_of);
HWY_EXPORT(nearest_labels);
HWY_EXPORT(is_finite_row);
HWY_EXPORT(mean_of);

CentroidTerms terms_of(const float* centroid, std::size_t dims, Metric metric) noexcept {
  float square = 0;
  for (std::size_t i = 0; i < dims; ++i) square += centroid[i] * centroid[i];
  if (metric == Metric::l2) return {.addend = square, .factor = -2.0F};
  return {.addend = 0, .factor = square > 0 ? -1.0F / std::sqrt(square) : 0.0F};
}

void pack_tile(const float* centroids, std::size_t count, std::size_t dims, Metric metric,
               float* tile) noexcept {
  for (std::size_t c = 0; c < tile_centroids; ++c) {
    const float* centroid = centroids + c * dims;
    const CentroidTerms terms = c < count ? terms_of(centroid, dims, metric) : nowhere;
    tile[c] = terms.addend;
    for (std::size_t i = 0; i < dims; ++i) {
      tile[(1 + i) * tile_centroids + c] = c < count ? terms.factor * centroid[i] : 0.0F;
    }
  }
}

void begin_search(NearestSearch& search) noexcept {
  const std::size_t used = search.row_count * tile_centroids;
  std::fill_n(search.distances.data(), used, std::numeric_limits<float>::infinity());
  std::fill_n(search.labels.data(), used, 0U);
}

void search_tile(NearestSearch& search, const float* tile, std::uint32_t first) noexcept {
  HWY_DYNAMIC_DISPATCH(search_tile_of)(search, tile, first);
}

void end_search(const NearestSearch& search, std::uint32_t* labels) noexcept {
  HWY_DYNAMIC_DISPATCH(nearest_labels)(search, labels);
}

bool is_finite(const float* row, std::size_t dims) noexcept {
  return HWY_DYNAMIC_DISPATCH(is_finite_row)(row, dims);
}

float exact_distance(const float* row, const float* centroid, std::size_t dims,
                     Metric metric) noexcept {
  float difference = 0;
  float product = 0;
  float row_square = 0;
  float centroid_square = 0;
  for (std::size_t i = 0; i < dims; ++i) {
    difference += (row[i] - centroid[i]) * (row[i] - centroid[i]);
    product += row[i] * centroid[i];
    row_square += row[i] * row[i];
    centroid_square += centroid[i] * centroid[i];
  }
  if (metric == Metric::l2) return difference;
  const float norms = std::sqrt(row_square) * std::sqrt(centroid_square);
  return norms > 0 ? std::max(0.0F, 1.0F - product / norms) : 1.0F;
}

void mean_of_rows(const float* rows, std::size_t dims, const std::uint32_t* members,
                  std::size_t count, float* mean) noexcept {
  HWY_DYNAMIC_DISPATCH(mean_of)(rows, dims, members, count, mean);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
