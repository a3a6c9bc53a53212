#include "host/centroid_search.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "host/amx_search.hpp"
#include "host/bf16_search.hpp"
#include "host/centroid_tiles.hpp"
#include "terrace/core/dtype.hpp"

namespace terrace::kernels::host {
namespace {

AmxShape amx_shape(std::size_t dims, Exactness exactness) noexcept {
  return {.dims = dims,
          .numbers = exactness == Exactness::f32 ? AmxNumbers::split : AmxNumbers::rounded};
}

float clustered_or_zero(float x) noexcept { return std::abs(x) < clustered_below ? x : 0.0F; }

/// The mean without the least and the greatest eighth.
template <std::size_t count>
float mean_of_the_inner(std::array<float, count>& values) noexcept {
  constexpr std::size_t left_out = (count + 1) / 8;
  std::ranges::sort(values);
  float sum = 0;
  for (std::size_t i = left_out; i < count - left_out; ++i) sum += values[i];
  return sum / static_cast<float>(count - 2 * left_out);
}

std::size_t f32_bytes(std::size_t centroids, std::size_t dims) noexcept {
  return tile_count(centroids) * tile_floats(dims) * sizeof(float);
}

}  // namespace

bool CentroidSearch::allocate() {
  const KmeansRows& rows = options_.rows;
  const std::size_t centroids = options_.centroids;
  const Search by = options_.by;
  std::size_t centroid_bytes = f32_bytes(centroids, rows.dims);
  std::size_t searched_rows = rows.row_count;
  if (by == Search::bf16) {
    rounded_elements_ = bf16_row_elements(rows.dims);
    const std::size_t tiles = divide_up(centroids, bf16_tile_centroids);
    centroid_bytes = std::max(centroid_bytes, tiles * bf16_tile_bytes(rows.dims));
  } else if (by == Search::amx) {
    rounded_elements_ = amx_shape(rows.dims, Exactness::rounded).row_elements();
    searched_rows = align_up(rows.row_count, amx_rows);
    const AmxShape split = amx_shape(rows.dims, Exactness::f32);
    centroid_bytes = divide_up(centroids, amx_centroids) * split.centroid_block_bytes();
    split_elements_ = search_rows_max * split.row_elements();
    split_rows_ = hwy::AllocateAligned<std::uint16_t>(options_.callers * split_elements_);
    if (!split_rows_) return false;
  }
  if (by != Search::f32) {
    addends_ = hwy::AllocateAligned<float>(centroids);
    coefficients_ = hwy::AllocateAligned<float>(centroids * rows.dims);
    origin_ = hwy::AllocateAligned<float>(rows.dims);
    direction_ = hwy::AllocateAligned<float>(rows.dims);
    if (!addends_ || !coefficients_ || !origin_ || !direction_) return false;
    choose_origin();
  }
  if (rounds()) {
    rounded_rows_ = hwy::AllocateAligned<std::uint16_t>(searched_rows * rounded_elements_);
    if (!rounded_rows_) return false;
  }
  centroids_ = hwy::AllocateAligned<std::byte>(centroid_bytes);
  return centroids_ != nullptr;
}

/// The mean of a few rows, dimension by dimension, from which products are the smallest, and the
/// mean of their directions. The outermost rows are left out, so that outliers do not move the
/// means.
void CentroidSearch::choose_origin() noexcept {
  constexpr std::size_t sample = 15;
  const std::size_t dims = options_.rows.dims;
  const auto& typical = options_.typical;
  std::array<const float*, sample> rows;
  std::array<float, sample> scales;
  for (std::size_t s = 0; s < sample; ++s) {
    rows[s] = typical.empty() ? row(s * options_.rows.row_count / sample)
                              : row(typical[s * typical.size() / sample]);
    scales[s] = -terms_of(rows[s], dims, Metric::cosine).factor;
  }
  std::array<float, sample> values;
  for (std::size_t i = 0; i < dims; ++i) {
    for (std::size_t s = 0; s < sample; ++s) values[s] = clustered_or_zero(rows[s][i]);
    // The origin has few bits, so that small whole numbers are exact beyond it, too.
    origin_[i] = bf16_to_f32(f32_to_bf16(mean_of_the_inner(values)));
    if (options_.metric == Metric::l2) continue;
    for (std::size_t s = 0; s < sample; ++s) {
      values[s] = scales[s] * clustered_or_zero(rows[s][i]);
    }
    direction_[i] = mean_of_the_inner(values);
  }
}

void CentroidSearch::round_rows(std::size_t begin, std::size_t end) noexcept {
  rows_to_bf16(rows_beyond_origin(begin, end), rounded_elements_,
               &rounded_rows_[begin * rounded_elements_]);
}

// Let x = o + y, and leave out the terms that all centroids share:
//   l2      |c - o|^2 - 2 y.(c - o)
//   cosine  o.k + y.k  with k = d - c / |c|, d a mean of directions
// so that no term grows with the distance of the origin.
void CentroidSearch::write_terms(const float* centroid, std::size_t c) noexcept {
  const std::size_t dims = options_.rows.dims;
  float* const coefficients = &coefficients_[c * dims];
  if (options_.metric == Metric::l2) {
    for (std::size_t i = 0; i < dims; ++i) coefficients[i] = -2 * (centroid[i] - origin_[i]);
    addends_[c] = dot(coefficients, coefficients, dims) / 4;
  } else {
    const float factor = terms_of(centroid, dims, Metric::cosine).factor;
    for (std::size_t i = 0; i < dims; ++i) {
      coefficients[i] = direction_[i] + factor * centroid[i];
    }
    addends_[c] = dot(origin_.get(), coefficients, dims);
  }
}

void CentroidSearch::pack_centroids(const float* centroids, Exactness exactness) noexcept {
  exactness_ = exactness;
  const std::size_t dims = options_.rows.dims;
  const std::size_t count = options_.centroids;
  std::byte* const packed = centroids_.get();
  const Search search = search_for(exactness);
  for (std::size_t c = 0; search != Search::f32 && c < count; ++c) {
    write_terms(centroids + c * dims, c);
  }
  switch (search) {
    case Search::f32:
      for (std::size_t c = 0; c < count; c += tile_centroids) {
        pack_tile(centroids + c * dims, std::min(tile_centroids, count - c), dims, options_.metric,
                  reinterpret_cast<float*>(packed) + c / tile_centroids * tile_floats(dims));
      }
      break;
    case Search::bf16:
      for (std::size_t c = 0; c < count; c += bf16_tile_centroids) {
        pack_bf16_tile(terms(c, std::min(bf16_tile_centroids, count - c)), dims,
                       packed + c / bf16_tile_centroids * bf16_tile_bytes(dims));
      }
      break;
    case Search::amx:
      pack_amx_centroids(amx_shape(dims, exactness), terms(0, count), packed);
      break;
  }
}

void CentroidSearch::find(std::size_t begin, std::size_t end, std::size_t caller,
                          std::uint32_t* labels) const noexcept {
  switch (search_for(exactness_)) {
    case Search::f32:
      return find_in_f32(begin, end, labels);
    case Search::bf16:
      return find_in_bf16(begin, end, labels);
    case Search::amx:
      return find_in_amx(begin, end, split_rows_.get() + caller * split_elements_, labels);
  }
}

void CentroidSearch::find_in_f32(std::size_t begin, std::size_t end,
                                 std::uint32_t* labels) const noexcept {
  NearestSearch search;
  search.rows = row(begin);
  search.row_count = end - begin;
  search.dims = options_.rows.dims;
  begin_search(search);
  search_tiles(search, reinterpret_cast<const float*>(centroids_.get()),
               tile_count(options_.centroids), 0);
  end_search(search, labels);
}

void CentroidSearch::find_in_bf16(std::size_t begin, std::size_t end,
                                  std::uint32_t* labels) const noexcept {
  const std::size_t dims = options_.rows.dims;
  NearestSearch search;
  search.row_count = end - begin;
  search.dims = dims;
  begin_search(search);
  for (std::size_t c = 0; c < options_.centroids; c += bf16_tile_centroids) {
    search_bf16_tile(search,
                     {.rows = rounded_row(begin),
                      .data = centroids_.get() + c / bf16_tile_centroids * bf16_tile_bytes(dims),
                      .count = std::min(bf16_tile_centroids, options_.centroids - c),
                      .first = static_cast<std::uint32_t>(c)});
  }
  end_search(search, labels);
}

void CentroidSearch::find_in_amx(std::size_t begin, std::size_t end, std::uint16_t* split,
                                 std::uint32_t* labels) const noexcept {
  const std::size_t dims = options_.rows.dims;
  const bool exact = exactness_ == Exactness::f32;
  if (exact) split_amx_rows(rows_beyond_origin(begin, end), split);
  search_amx({.shape = amx_shape(dims, exactness_),
              .rows = reinterpret_cast<const std::byte*>(exact ? split : rounded_row(begin)),
              .row_count = end - begin,
              .centroids = centroids_.get(),
              .centroid_count = options_.centroids},
             labels);
}

}  // namespace terrace::kernels::host
