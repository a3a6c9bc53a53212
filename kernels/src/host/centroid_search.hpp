// The nearest centroids of rows that are searched again and again, by whichever search is the
// fastest on this CPU.
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "host/bf16_search.hpp"
#include "host/centroid_tiles.hpp"
#include "host/isa_choice.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace::kernels::host {

/// How much a search may err.
enum class Exactness : std::uint8_t {
  rounded,  ///< what is nearest may be the second nearest by a hair, where that is faster
  f32,      ///< as sums of f32 products err, or by up to 2^-14 of the products' sizes
};

struct CentroidSearchOptions {
  KmeansRows rows;
  std::size_t centroids = 0;
  Metric metric = Metric::l2;
  Search by = Search::f32;
  bool may_round = true;                     ///< whether some searches will be rounded
  std::span<const std::uint32_t> typical{};  ///< rows that represent all rows; empty: any rows
  std::size_t callers = 1;                   ///< that may search at once
};

/// Threads  find() by as many callers as were named, each with a number of its own; round_rows() by
///          any number
class CentroidSearch {
 public:
  explicit CentroidSearch(const CentroidSearchOptions& options) noexcept : options_(options) {}

  /// Returns false when memory is short. The first thing to call.
  [[nodiscard]] bool allocate();

  /// Whether searches may be rounded. Rows must be rounded before that.
  [[nodiscard]] bool rounds() const noexcept {
    return options_.may_round && options_.by != Search::f32;
  }
  void round_rows(std::size_t begin, std::size_t end) noexcept;

  /// Returns the point that is subtracted from rows before they are rounded: [dims].
  [[nodiscard]] const float* origin() const noexcept { return origin_.get(); }

  /// Returns rows by rows_to_bf16(), from the i-th on.
  [[nodiscard]] const std::uint16_t* rounded_row(std::size_t i) const noexcept {
    return &rounded_rows_[i * rounded_elements_];
  }
  [[nodiscard]] std::size_t rounded_elements() const noexcept { return rounded_elements_; }

  /// Takes centroids [centroids, dims] to be searched among from now on.
  void pack_centroids(const float* centroids, Exactness exactness) noexcept;

  /// Writes the labels of the nearest centroids of up to search_rows_max rows, ties to the lower; 0
  /// where no distance is below infinity.
  void find(std::size_t begin, std::size_t end, std::size_t caller,
            std::uint32_t* labels) const noexcept;

 private:
  template <typename T>
  using Buffer = hwy::AlignedFreeUniquePtr<T[]>;

  [[nodiscard]] Search search_for(Exactness exactness) const noexcept {
    return exactness == Exactness::f32 && options_.by == Search::bf16 ? Search::f32 : options_.by;
  }
  [[nodiscard]] const float* row(std::size_t i) const noexcept {
    return options_.rows.rows + i * options_.rows.dims;
  }
  void choose_origin() noexcept;
  [[nodiscard]] RowsToRound rows_beyond_origin(std::size_t begin, std::size_t end) const noexcept {
    return {.rows = row(begin),
            .row_count = end - begin,
            .dims = options_.rows.dims,
            .origin = origin_.get()};
  }
  /// Writes the terms of one centroid, of rows beyond the origin.
  void write_terms(const float* centroid, std::size_t c) noexcept;
  [[nodiscard]] DistanceTerms terms(std::size_t first, std::size_t count) const noexcept {
    return {.addends = &addends_[first],
            .coefficients = &coefficients_[first * options_.rows.dims],
            .count = count};
  }
  void find_in_f32(std::size_t begin, std::size_t end, std::uint32_t* labels) const noexcept;
  void find_in_bf16(std::size_t begin, std::size_t end, std::uint32_t* labels) const noexcept;
  void find_in_amx(std::size_t begin, std::size_t end, std::uint16_t* split,
                   std::uint32_t* labels) const noexcept;

  CentroidSearchOptions options_;
  Exactness exactness_ = Exactness::f32;
  Buffer<std::byte> centroids_;
  Buffer<float> addends_;               // [centroids]; these four but for f32
  Buffer<float> coefficients_;          // [centroids, dims]
  Buffer<float> origin_;                // [dims]
  Buffer<float> direction_;             // [dims]: a mean of rows' directions, for cosine
  std::size_t rounded_elements_ = 0;    // of a row
  Buffer<std::uint16_t> rounded_rows_;  // [rows, rounded_elements]
  std::size_t split_elements_ = 0;      // of search_rows_max rows
  Buffer<std::uint16_t> split_rows_;    // [callers, split_elements]
};

}  // namespace terrace::kernels::host
