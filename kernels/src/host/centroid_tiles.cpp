#include "host/centroid_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/centroid_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t tile_vectors = tile_centroids / lanes;
constexpr std::size_t tiles_at_once = registers == 32 ? 4 : 1;

using Labels = hn::Vec<hn::RebindToUnsigned<FloatTag>>;

/// Tiles side by side, searched at once.
struct Tiles {
  const float* first;
  std::size_t stride;  // floats from one to the next
  std::uint32_t label;
};

/// Searches `tile_count` tiles for `row_count` rows at once.
template <std::size_t row_count, std::size_t tile_count>
HWY_INLINE void search_rows(NearestSearch& search, std::size_t begin, const Tiles& tiles) {
  constexpr std::size_t vectors = tile_count * tile_vectors;
  const FloatTag tag;
  const hn::RebindToUnsigned<FloatTag> label_tag;
  const std::size_t dims = search.dims;
  const float* rows = search.rows + begin * dims;
  const auto at = [&](std::size_t line, std::size_t v) HWY_ATTR {
    return tiles.first + v / tile_vectors * tiles.stride + line * tile_centroids +
           v % tile_vectors * lanes;
  };
  Floats sums[row_count * vectors];
#pragma GCC unroll 24
  for (std::size_t i = 0; i < row_count * vectors; ++i)
    sums[i] = hn::LoadU(tag, at(0, i % vectors));
  for (std::size_t dim = 0; dim < dims; ++dim) {
    Floats coefficients[vectors];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) coefficients[v] = hn::LoadU(tag, at(1 + dim, v));
#pragma GCC unroll 12
    for (std::size_t r = 0; r < row_count; ++r) {
      const Floats element = hn::Set(tag, rows[r * dims + dim]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < vectors; ++v) {
        sums[r * vectors + v] = hn::MulAdd(element, coefficients[v], sums[r * vectors + v]);
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
    for (std::size_t v = 0; v < vectors; ++v) {
      const Floats distance = sums[r * vectors + v];
      const auto nearer = hn::Lt(distance, least);
      const Labels own = hn::Iota(label_tag, tiles.label + static_cast<std::uint32_t>(v * lanes));
      least = hn::IfThenElse(nearer, distance, least);
      nearest = hn::IfThenElse(hn::RebindMask(label_tag, nearer), own, nearest);
    }
    hn::StoreU(least, tag, distances);
    hn::StoreU(nearest, label_tag, labels);
  }
}

template <std::size_t rows_at_once, std::size_t tile_count>
HWY_INLINE void search_all_rows(NearestSearch& search, const Tiles& tiles) {
  std::size_t row = 0;
  for (; row + rows_at_once <= search.row_count; row += rows_at_once) {
    search_rows<rows_at_once, tile_count>(search, row, tiles);
  }
  for (; row < search.row_count; ++row) search_rows<1, tile_count>(search, row, tiles);
}

void search_tiles_of(NearestSearch& search, const float* tiles, std::size_t tile_count,
                     std::uint32_t first) {
  const std::size_t stride = tile_floats(search.dims);
  std::size_t tile = 0;
  const auto next = [&] {
    const auto label = first + static_cast<std::uint32_t>(tile * tile_centroids);
    return Tiles{tiles + tile * stride, stride, label};
  };
  // 12 or 24 sums leave registers for the operands.
  if constexpr (tiles_at_once > 1) {
    for (; tile + tiles_at_once <= tile_count; tile += tiles_at_once) {
      search_all_rows<6, tiles_at_once>(search, next());
    }
  }
  for (; tile < tile_count; ++tile) search_all_rows<12 / tile_vectors, 1>(search, next());
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

bool are_clustered(const float* numbers, std::size_t count) {
  constexpr std::size_t chains = 4;  // that do not wait for each other
  constexpr float to_infinity = 0x1p128 / double{clustered_below};
  const FloatTag tag;
  const Floats scale = hn::Set(tag, to_infinity);
  Floats zeros[chains] = {hn::Zero(tag), hn::Zero(tag), hn::Zero(tag), hn::Zero(tag)};
  float tail = 0;  // infinity times 0 is NaN
  std::size_t i = 0;
  for (; i + chains * lanes <= count; i += chains * lanes) {
    for (std::size_t c = 0; c < chains; ++c) {
      const Floats scaled = hn::Mul(hn::LoadU(tag, numbers + i + c * lanes), scale);
      zeros[c] = hn::MulAdd(scaled, hn::Zero(tag), zeros[c]);
    }
  }
  for (; i < count; ++i) tail += numbers[i] * to_infinity * 0.0F;
  const Floats all = hn::Add(hn::Add(zeros[0], zeros[1]), hn::Add(zeros[2], zeros[3]));
  return sum_of_lanes(all) + tail == 0.0F;
}

void find_clustered_rows(const float* rows, std::size_t row_count, std::size_t dims,
                         std::uint8_t* clustered) {
  constexpr std::size_t at_once = 16;  // nearly all are
  for (std::size_t begin = 0; begin < row_count; begin += at_once) {
    const std::size_t end = std::min(row_count, begin + at_once);
    const bool all = are_clustered(rows + begin * dims, (end - begin) * dims);
    for (std::size_t r = begin; r < end; ++r) {
      clustered[r] = static_cast<std::uint8_t>(all || are_clustered(rows + r * dims, dims));
    }
  }
}

template <typename Elements>
void add_rows_of(const LabelledRows& rows, const RowSums& target) {
  const FloatTag tag;
  const std::size_t dims = rows.dims;
  const std::size_t whole = dims / lanes * lanes;
  const auto* row = static_cast<const std::byte*>(rows.rows);
  for (std::size_t r = 0; r < rows.row_count; ++r, row += rows.row_elements * Elements::bytes) {
    if (rows.admitted[r] == 0) continue;
    float* sum = target.sums + rows.labels[r] * dims;
    ++target.counts[rows.labels[r]];
    for (std::size_t i = 0; i < whole; i += lanes) {
      const Floats some = Elements::load(row + i * Elements::bytes);
      hn::StoreU(hn::Add(hn::LoadU(tag, sum + i), some), tag, sum + i);
    }
    if (whole == dims) continue;
    alignas(64) float tail[lanes];
    hn::Store(load_tail<Elements>(row + whole * Elements::bytes, dims - whole), tag, tail);
    for (std::size_t i = whole; i < dims; ++i) sum[i] += tail[i - whole];
  }
}

void add_f32_rows_of(const LabelledRows& rows, const RowSums& target) {
  add_rows_of<F32Elements>(rows, target);
}
void add_bf16_rows_of(const LabelledRows& rows, const RowSums& target) {
  add_rows_of<Bf16Elements>(rows, target);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(search_tiles_of);
HWY_EXPORT(nearest_labels);
HWY_EXPORT(find_clustered_rows);
HWY_EXPORT(add_f32_rows_of);
HWY_EXPORT(add_bf16_rows_of);

float dot(const float* a, const float* b, std::size_t dims) noexcept {
  constexpr std::size_t partial = 16;
  float sums[partial] = {};
  std::size_t begin = 0;
  for (; begin + partial <= dims; begin += partial) {
    for (std::size_t i = 0; i < partial; ++i) sums[i] += a[begin + i] * b[begin + i];
  }
  for (std::size_t i = 0; begin + i < dims; ++i) sums[i] += a[begin + i] * b[begin + i];
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

CentroidTerms terms_of(const float* centroid, std::size_t dims, Metric metric) noexcept {
  const float square = dot(centroid, centroid, dims);
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

void search_tiles(NearestSearch& search, const float* tiles, std::size_t tile_count,
                  std::uint32_t first) noexcept {
  HWY_DYNAMIC_DISPATCH(search_tiles_of)(search, tiles, tile_count, first);
}

void end_search(const NearestSearch& search, std::uint32_t* labels) noexcept {
  HWY_DYNAMIC_DISPATCH(nearest_labels)(search, labels);
}

void find_clustered(const float* rows, std::size_t row_count, std::size_t dims,
                    std::uint8_t* clustered) noexcept {
  HWY_DYNAMIC_DISPATCH(find_clustered_rows)(rows, row_count, dims, clustered);
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

void add_f32_rows(const LabelledRows& rows, const RowSums& target) noexcept {
  HWY_DYNAMIC_DISPATCH(add_f32_rows_of)(rows, target);
}

void add_bf16_rows(const LabelledRows& rows, const RowSums& target) noexcept {
  HWY_DYNAMIC_DISPATCH(add_bf16_rows_of)(rows, target);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
