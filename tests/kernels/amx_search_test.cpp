// The search in tiles, on tiles made here as the CPU's are described: machines that have them are
// few. Where there are some, the CPU's own are tested, too.
#include "host/amx_search.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "host/search_in_tiles-inl.hpp"
#include "kernels/seed.hpp"

namespace terrace::kernels::host {
namespace {

float from_bf16(std::uint16_t number) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number) << 16);
}

std::uint16_t to_bf16(float number) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(number) + 0x8000U) >> 16);
}

/// A register of 16 lines of 64 bytes.
struct Tile {
  alignas(64) std::byte lines[16][64];

  void load(const void* from, std::size_t stride) {
    for (std::size_t i = 0; i < 16; ++i) {
      std::memcpy(lines[i], static_cast<const std::byte*>(from) + i * stride, 64);
    }
  }
  [[nodiscard]] std::uint16_t bf16(std::size_t line, std::size_t i) const {
    std::uint16_t number = 0;
    std::memcpy(&number, &lines[line][i * 2], 2);
    return number;
  }
  float& sum(std::size_t line, std::size_t i) {
    return *reinterpret_cast<float*>(&lines[line][i * 4]);
  }
};

/// TDPBF16PS: pairs along a's lines, and down b's.
void add_products(Tile& sums, const Tile& a, const Tile& b) {
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 16; ++n) {
      float of_first = 0;
      float of_second = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        of_first += from_bf16(a.bf16(m, 2 * k)) * from_bf16(b.bf16(k, 2 * n));
        of_second += from_bf16(a.bf16(m, 2 * k + 1)) * from_bf16(b.bf16(k, 2 * n + 1));
      }
      sums.sum(m, n) += of_first + of_second;
    }
  }
}

class TilesOfTest {
 public:
  void begin(const float* addends) {
    for (std::size_t i = 0; i < 4; ++i) sums_[i].load(addends + i % 2 * 16, 0);
  }
  void add(const std::uint16_t* rows, std::size_t row_bytes, const std::byte* coefficients,
           std::size_t line_bytes) {
    Tile of_rows[2];
    Tile of_centroids[2];
    for (std::size_t i = 0; i < 2; ++i) {
      of_rows[i].load(reinterpret_cast<const std::byte*>(rows) + i * 16 * row_bytes, row_bytes);
      of_centroids[i].load(coefficients + i * 64, line_bytes);
    }
    for (std::size_t i = 0; i < 4; ++i) add_products(sums_[i], of_rows[i / 2], of_centroids[i % 2]);
  }
  void store(TileSums& sums) {
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(sums.of[i / 2][i % 2], sums_[i].lines, 1024);
  }

 private:
  Tile sums_[4];
};

struct Case {
  std::size_t rows = 0;
  std::size_t dims = 0;
  std::size_t centroids = 0;

  friend std::ostream& operator<<(std::ostream& out, const Case& one) {
    return out << one.rows << " rows of " << one.dims << ", " << one.centroids << " centroids";
  }
};

/// Rounded rows and centroids in one packed tile after the other, as clustering has them.
class SearchInTiles : public ::testing::TestWithParam<Case> {
 protected:
  SearchInTiles()
      : its_(GetParam()), rows_(draw(its_.rows, 1)), centroids_(draw(its_.centroids, 2)) {
    rounded_.assign((its_.rows + amx_rows - 1) / amx_rows * amx_rows * its_.dims, 0);
    for (std::size_t i = 0; i < rows_.size(); ++i) rounded_[i] = to_bf16(rows_[i]);
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i] = from_bf16(rounded_[i]);
    tiles_ = std::vector<Packed>((its_.centroids + bf16_tile_centroids - 1) / bf16_tile_centroids);
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      const std::size_t first = t * bf16_tile_centroids;
      pack_bf16_tile(&centroids_[first * its_.dims], count_of(t), its_.dims, Metric::l2,
                     tiles_[t].bytes);
    }
  }

  using OfTile = std::function<void(NearestSearch&, const Bf16Tile&)>;
  std::vector<std::uint32_t> labels_by(const OfTile& search_tile) {
    const auto search = std::make_unique<NearestSearch>();
    search->row_count = its_.rows;
    search->dims = its_.dims;
    std::fill(search->distances.begin(), search->distances.end(),
              std::numeric_limits<float>::infinity());
    search->labels.fill(0);
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      search_tile(*search, {.rows = rounded_.data(),
                            .data = tiles_[t].bytes,
                            .count = count_of(t),
                            .first = static_cast<std::uint32_t>(t * bf16_tile_centroids)});
    }
    std::vector<std::uint32_t> labels(its_.rows);
    for (std::size_t r = 0; r < its_.rows; ++r) {
      std::size_t best = r * 16;
      for (std::size_t i = r * 16; i < (r + 1) * 16; ++i) {
        const auto rank = [&](std::size_t at) {
          return std::pair(search->distances[at], search->labels[at]);
        };
        if (rank(i) < rank(best)) best = i;
      }
      labels[r] = search->labels[best];
    }
    return labels;
  }

  /// |x - c|^2, of a row as it was rounded.
  [[nodiscard]] double distance(std::size_t row, std::size_t centroid) const {
    double sum = 0;
    for (std::size_t i = 0; i < its_.dims; ++i) {
      sum += std::pow(double{rows_[row * its_.dims + i]} - centroids_[centroid * its_.dims + i], 2);
    }
    return sum;
  }

  /// Coefficients are rounded to 8 bits: errors of a fifth of a per cent a product, which add up
  /// like steps of a walk; five times what is usual.
  void expect_nearest(const std::vector<std::uint32_t>& labels) const {
    for (std::size_t r = 0; r < its_.rows; ++r) {
      ASSERT_LT(labels[r], its_.centroids) << r;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t c = 0; c < its_.centroids; ++c) least = std::min(least, distance(r, c));
      const double tolerance = 0.015 * std::sqrt(static_cast<double>(its_.dims));
      ASSERT_LE(distance(r, labels[r]), least + tolerance)
          << "row " << r << ", " << testing::seed_text();
    }
  }

 private:
  struct alignas(64) Packed {
    std::byte bytes[bf16_tile_bytes(128)];
  };
  [[nodiscard]] std::size_t count_of(std::size_t t) const {
    return std::min(bf16_tile_centroids, its_.centroids - t * bf16_tile_centroids);
  }
  [[nodiscard]] std::vector<float> draw(std::size_t count, std::uint64_t what) const {
    std::vector<float> numbers(count * its_.dims);
    Rng rng(testing::seed(), {its_.rows, its_.dims, what});
    for (float& x : numbers) x = testing::normal(rng);
    return numbers;
  }

  Case its_;
  std::vector<float> rows_;
  std::vector<float> centroids_;
  std::vector<std::uint16_t> rounded_;
  std::vector<Packed> tiles_;
};

void search_in_own_tiles(NearestSearch& search, const Bf16Tile& tile) {
  TilesOfTest tiles;
  search_in_tiles(tiles, search, tile);
}

TEST_P(SearchInTiles, FindsTheNearest) {
  expect_nearest(labels_by(search_in_own_tiles));
  // Where there are none, host.kernels_on_amx is shown as skipped.
  if (has_amx_search()) expect_nearest(labels_by(search_amx_tile));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SearchInTiles,
                         ::testing::Values(Case{1, 32, 1}, Case{31, 32, 16}, Case{32, 64, 17},
                                           Case{33, 64, 64}, Case{192, 64, 70}, Case{100, 96, 33},
                                           Case{64, 128, 200}, Case{150, 128, 48}));

TEST(SearchInTilesOfTies, TakesTheLowerLabel) {
  constexpr std::size_t dims = 32;
  std::vector<float> centroids(40 * dims, 1.0F);
  std::vector<std::uint16_t> rows(amx_rows * dims, to_bf16(2.0F));
  alignas(64) std::byte packed[bf16_tile_bytes(dims)];
  pack_bf16_tile(centroids.data(), 40, dims, Metric::l2, packed);
  const auto search = std::make_unique<NearestSearch>();
  search->row_count = 20;
  search->dims = dims;
  search->distances.fill(std::numeric_limits<float>::infinity());
  search->labels.fill(0);
  for (const std::uint32_t first : {100U, 140U}) {
    search_in_own_tiles(*search, {rows.data(), packed, 40, first});
  }
  for (std::uint32_t lane = 0; lane < 16; ++lane) EXPECT_EQ(search->labels[lane], 100 + lane);
}

}  // namespace
}  // namespace terrace::kernels::host
