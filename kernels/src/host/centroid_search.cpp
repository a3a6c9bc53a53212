#include "host/centroid_search.hpp"

#include <algorithm>

#include "host/amx_search.hpp"
#include "host/bf16_search.hpp"
#include "host/centroid_tiles.hpp"

namespace terrace::kernels::host {
namespace {

AmxShape amx_shape(std::size_t dims, Exactness exactness) noexcept {
  return {.dims = dims,
          .numbers = exactness == Exactness::f32 ? AmxNumbers::split : AmxNumbers::rounded};
}

std::size_t f32_bytes(std::size_t centroids, std::size_t dims) noexcept {
  return tile_count(centroids) * tile_floats(dims) * sizeof(float);
}

}  // namespace

bool CentroidSearch::allocate() {
  const auto& [rows, centroids, metric, by, callers] = options_;
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
    split_rows_ = hwy::AllocateAligned<std::uint16_t>(callers * split_elements_);
    if (!split_rows_) return false;
  }
  if (rounds()) {
    rounded_rows_ = hwy::AllocateAligned<std::uint16_t>(searched_rows * rounded_elements_);
    if (!rounded_rows_) return false;
  }
  centroids_ = hwy::AllocateAligned<std::byte>(centroid_bytes);
  return centroids_ != nullptr;
}

void CentroidSearch::round_rows(std::size_t begin, std::size_t end) noexcept {
  rows_to_bf16(row(begin), end - begin, options_.rows.dims, rounded_elements_,
               &rounded_rows_[begin * rounded_elements_]);
}

void CentroidSearch::pack_centroids(const float* centroids, Exactness exactness) noexcept {
  exactness_ = exactness;
  const std::size_t dims = options_.rows.dims;
  const std::size_t count = options_.centroids;
  std::byte* const packed = centroids_.get();
  switch (search_for(exactness)) {
    case Search::f32:
      for (std::size_t c = 0; c < count; c += tile_centroids) {
        pack_tile(centroids + c * dims, std::min(tile_centroids, count - c), dims, options_.metric,
                  reinterpret_cast<float*>(packed) + c / tile_centroids * tile_floats(dims));
      }
      break;
    case Search::bf16:
      for (std::size_t c = 0; c < count; c += bf16_tile_centroids) {
        pack_bf16_tile(centroids + c * dims, std::min(bf16_tile_centroids, count - c), dims,
                       options_.metric, packed + c / bf16_tile_centroids * bf16_tile_bytes(dims));
      }
      break;
    case Search::amx:
      pack_amx_centroids(amx_shape(dims, exactness), centroids, count, options_.metric, packed);
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
  if (exact) split_amx_rows(dims, row(begin), end - begin, split);
  search_amx({.shape = amx_shape(dims, exactness_),
              .rows = reinterpret_cast<const std::byte*>(exact ? split : rounded_row(begin)),
              .row_count = end - begin,
              .centroids = centroids_.get(),
              .centroid_count = options_.centroids},
             labels);
}

}  // namespace terrace::kernels::host
