// The search in tiles, on tiles made here after the CPU's description, because few machines have
// them. If the machine has tiles, the CPU's own are tested, too.
#include "host/amx_search.hpp"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "host/bf16_search.hpp"
#include "host/search_in_tiles-inl.hpp"
#include "kernels/seed.hpp"
#include "terrace/core/dtype.hpp"

namespace terrace::kernels::host {
namespace {

/// A register of 16 lines of 64 bytes.
struct Tile {
  alignas(64) std::byte lines[16][64] = {};

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
void add_to(Tile& sums, const Tile& a, const Tile& b) {
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 16; ++n) {
      float of_first = 0;
      float of_second = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        of_first += bf16_to_f32(a.bf16(m, 2 * k)) * bf16_to_f32(b.bf16(k, 2 * n));
        of_second += bf16_to_f32(a.bf16(m, 2 * k + 1)) * bf16_to_f32(b.bf16(k, 2 * n + 1));
      }
      sums.sum(m, n) += of_first + of_second;
    }
  }
}

class TilesOfTest {
 public:
  template <std::size_t tile>
  void load(const std::byte* from, std::size_t line_bytes) {
    for (std::size_t line = 0; line < 16; ++line) {
      std::memcpy(tiles_[tile].lines[line], from + line * line_bytes, 64);
    }
  }
  template <std::size_t sums, std::size_t rows, std::size_t centroids>
  void add_products() {
    static_assert(sums != rows && sums != centroids && rows != centroids);
    add_to(tiles_[sums], tiles_[rows], tiles_[centroids]);
  }
  template <std::size_t tile>
  void store(TileSums& sums) {
    std::memcpy(sums.of, tiles_[tile].lines, sizeof(Tile));
  }
  static void lower(Lanes& distance, const Lanes& found) {
    distance = found < distance ? found : distance;
  }

 private:
  Tile tiles_[8];
};

/// Aligned as the CPU's tiles are.
using Packed = hwy::AlignedFreeUniquePtr<std::byte[]>;

struct Case {
  std::size_t rows = 0;
  std::size_t dims = 0;
  std::size_t centroids = 0;

  friend std::ostream& operator<<(std::ostream& out, const Case& one) {
    return out << one.rows << " rows of " << one.dims << ", " << one.centroids << " centroids";
  }
};

/// Returns the bytes of rows, up to a multiple of 16 rows.
std::size_t row_bytes(const AmxShape& shape, std::size_t count) {
  return align_up(count, amx_rows) * shape.row_bytes();
}
std::size_t centroid_bytes(const AmxShape& shape, std::size_t count) {
  return divide_up(count, amx_centroids) * shape.centroid_block_bytes();
}

/// Number `part` of what a number is rounded to or split in.
std::uint16_t part_of(float number, std::size_t part) {
  const std::uint16_t rounded = f32_to_bf16(number);
  return part == 0 ? rounded : f32_to_bf16(number - bf16_to_f32(rounded));
}

void write_bf16(std::byte* at, std::size_t element, std::uint16_t number) {
  std::memcpy(at + element * 2, &number, 2);
}

/// Packs rows as the header says: [parts, steps, 32 dimensions] of each row. Rows after the last
/// are NaN, which must do no harm.
void pack_rows_plainly(const AmxShape& shape, const std::vector<float>& rows, std::byte* packed) {
  const std::size_t count = rows.size() / shape.dims;
  std::memset(packed, 0xff, row_bytes(shape, count));
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t part = 0; part < shape.parts(); ++part) {
      for (std::size_t i = 0; i < shape.steps() * amx_dims; ++i) {
        const float number = i < shape.dims ? rows[r * shape.dims + i] : 0;
        write_bf16(packed + r * shape.row_bytes(), part * shape.steps() * amx_dims + i,
                   part_of(number, part));
      }
    }
  }
}

/// As the header has it: [parts, steps, 16 pairs, 16 centroids, 2], and addends, of each 16.
void pack_centroids_plainly(const AmxShape& shape, const std::vector<float>& centroids,
                            std::byte* packed) {
  const std::size_t count = centroids.size() / shape.dims;
  for (std::size_t c = 0; c < align_up(count, amx_centroids); ++c) {
    std::byte* const block = packed + c / amx_centroids * shape.centroid_block_bytes();
    const CentroidTerms terms =
        c < count ? terms_of(&centroids[c * shape.dims], shape.dims, Metric::l2) : nowhere;
    std::memcpy(block + shape.addends_offset() + c % amx_centroids * 4, &terms.addend, 4);
    for (std::size_t part = 0; part < shape.parts(); ++part) {
      for (std::size_t i = 0; i < shape.steps() * amx_dims; ++i) {
        const bool is_there = c < count && i < shape.dims;
        const float number = is_there ? terms.factor * centroids[c * shape.dims + i] : 0;
        const std::size_t tile = part * shape.steps() + i / amx_dims;
        const std::size_t pair = i % amx_dims / 2;
        write_bf16(block + tile * AmxShape::tile_bytes,
                   (pair * amx_centroids + c % amx_centroids) * 2 + i % 2, part_of(number, part));
      }
    }
  }
}

class SearchInTilesTest : public ::testing::TestWithParam<std::tuple<Case, AmxNumbers>> {
 protected:
  SearchInTilesTest()
      : its_(std::get<Case>(GetParam())),
        shape_{its_.dims, std::get<AmxNumbers>(GetParam())},
        rows_(draw(its_.rows, 1)),
        centroids_(draw(its_.centroids, 2)),
        packed_rows_(hwy::AllocateAligned<std::byte>(row_bytes(shape_, its_.rows))),
        packed_centroids_(hwy::AllocateAligned<std::byte>(centroid_bytes(shape_, its_.centroids))) {
    if (shape_.numbers == AmxNumbers::rounded) {
      for (float& x : rows_) x = bf16_to_f32(f32_to_bf16(x));
    }
    pack_rows_plainly(shape_, rows_, packed_rows_.get());
    pack_centroids_plainly(shape_, centroids_, packed_centroids_.get());
  }

  AmxSearch search() {
    return {.shape = shape_,
            .rows = packed_rows_.get(),
            .row_count = its_.rows,
            .centroids = packed_centroids_.get(),
            .centroid_count = its_.centroids};
  }

  /// |x - c|^2, of a row as it was rounded.
  [[nodiscard]] double distance(std::size_t row, std::size_t centroid) const {
    double sum = 0;
    for (std::size_t i = 0; i < its_.dims; ++i) {
      sum += std::pow(double{rows_[row * its_.dims + i]} - centroids_[centroid * its_.dims + i], 2);
    }
    return sum;
  }

  /// Sums of the products' sizes.
  [[nodiscard]] double product(std::size_t row, std::size_t centroid) const {
    double sum = 0;
    for (std::size_t i = 0; i < its_.dims; ++i) {
      sum += std::abs(double{rows_[row * its_.dims + i]} * centroids_[centroid * its_.dims + i]);
    }
    return sum;
  }

  /// In 2 x.c either the coefficients are rounded to 8 bits, or both factors are split into 16.
  void expect_nearest(const std::vector<std::uint32_t>& labels) const {
    const double error = shape_.numbers == AmxNumbers::rounded ? 0x1p-8 : 0x1p-14;
    for (std::size_t r = 0; r < its_.rows; ++r) {
      ASSERT_LT(labels[r], its_.centroids) << r;
      const double nearest = distance(r, labels[r]) - error * product(r, labels[r]);
      for (std::size_t c = 0; c < its_.centroids; ++c) {
        ASSERT_LE(nearest, distance(r, c) + error * product(r, c))
            << "row " << r << ", centroid " << c << ", " << testing::seed_text();
      }
    }
  }

  [[nodiscard]] std::vector<float> draw(std::size_t count, std::uint64_t what) const {
    std::vector<float> numbers(count * its_.dims);
    Rng rng(testing::seed(), {its_.rows, its_.dims, what});
    for (float& x : numbers) x = testing::normal(rng);
    return numbers;
  }

  Case its_;
  AmxShape shape_;
  std::vector<float> rows_;
  std::vector<float> centroids_;
  Packed packed_rows_;
  Packed packed_centroids_;
};

TEST_P(SearchInTilesTest, FindsTheNearest) {
  TilesOfTest tiles;
  std::vector<std::uint32_t> labels(its_.rows);
  search_in_tiles(tiles, search(), labels.data());
  expect_nearest(labels);
}

TEST_P(SearchInTilesTest, FindsTheSameInTheCpusTiles) {
  if (!has_amx_search()) GTEST_SKIP() << "this machine has no AMX";
  std::vector<std::uint32_t> labels(its_.rows);
  search_amx(search(), labels.data());
  expect_nearest(labels);
}

TEST_P(SearchInTilesTest, PacksAsItSays) {
  if (!has_amx_search()) GTEST_SKIP() << "this machine has no AMX";
  const std::size_t elements = its_.rows * shape_.row_elements();
  const auto rows = hwy::AllocateAligned<std::uint16_t>(elements);
  const std::vector<float> origin(its_.dims);
  const RowsToRound all{
      .rows = rows_.data(), .row_count = its_.rows, .dims = its_.dims, .origin = origin.data()};
  if (shape_.numbers == AmxNumbers::split) {
    split_amx_rows(all, rows.get());
  } else {
    rows_to_bf16(all, shape_.row_elements(), rows.get());
  }
  EXPECT_EQ(std::memcmp(rows.get(), packed_rows_.get(), elements * sizeof(std::uint16_t)), 0);
  const Packed centroids = hwy::AllocateAligned<std::byte>(centroid_bytes(shape_, its_.centroids));
  std::vector<float> addends;
  std::vector<float> coefficients;
  for (std::size_t c = 0; c < its_.centroids; ++c) {
    const float* const centroid = &centroids_[c * its_.dims];
    const CentroidTerms terms = terms_of(centroid, its_.dims, Metric::l2);
    addends.push_back(terms.addend);
    for (std::size_t i = 0; i < its_.dims; ++i) coefficients.push_back(terms.factor * centroid[i]);
  }
  pack_amx_centroids(
      shape_,
      {.addends = addends.data(), .coefficients = coefficients.data(), .count = its_.centroids},
      centroids.get());
  EXPECT_EQ(
      std::memcmp(centroids.get(), packed_centroids_.get(), centroid_bytes(shape_, its_.centroids)),
      0);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SearchInTilesTest,
    ::testing::Combine(::testing::Values(Case{1, 32, 1}, Case{15, 32, 16}, Case{32, 64, 17},
                                         Case{33, 64, 64}, Case{192, 64, 70}, Case{100, 96, 33},
                                         Case{64, 128, 200}, Case{150, 128, 48}, Case{40, 1, 5},
                                         Case{17, 33, 40}, Case{31, 80, 65}, Case{20, 192, 90},
                                         Case{18, 8, 1100}),
                       ::testing::Values(AmxNumbers::rounded, AmxNumbers::split)));

std::vector<std::uint32_t> labels_of(const AmxShape& shape, const std::vector<float>& rows,
                                     const std::vector<float>& centroids) {
  const std::size_t count = rows.size() / shape.dims;
  const std::size_t centroid_count = centroids.size() / shape.dims;
  const Packed packed_rows = hwy::AllocateAligned<std::byte>(row_bytes(shape, count));
  const Packed packed_centroids =
      hwy::AllocateAligned<std::byte>(centroid_bytes(shape, centroid_count));
  pack_rows_plainly(shape, rows, packed_rows.get());
  pack_centroids_plainly(shape, centroids, packed_centroids.get());
  TilesOfTest tiles;
  std::vector<std::uint32_t> labels(count);
  const AmxSearch search{shape, packed_rows.get(), count, packed_centroids.get(), centroid_count};
  search_in_tiles(tiles, search, labels.data());
  return labels;
}

TEST(SearchInTilesOfTies, TakesTheLowerLabel) {
  constexpr AmxShape shape{.dims = 32, .numbers = AmxNumbers::split};
  const std::vector<float> rows(20 * 32, 2.0F);
  for (const float sign : {1.0F, -1.0F}) {  // distances below zero and above
    std::vector<float> centroids(70 * 32, sign);
    for (std::size_t i = 0; i < 3 * 32; ++i) centroids[i] = -100;
    EXPECT_EQ(labels_of(shape, rows, centroids), std::vector<std::uint32_t>(20, 3)) << sign;
  }
}

TEST(SearchInTilesOfWhatIsNoNumber, GivesTheFirstLabel) {
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  constexpr float huge = 1e30F;  // its products are infinite
  for (const AmxNumbers numbers : {AmxNumbers::rounded, AmxNumbers::split}) {
    const AmxShape shape{.dims = 32, .numbers = numbers};
    std::vector<float> rows(3 * 32, 1.0F);
    std::fill_n(&rows[32], 32, none);
    std::fill_n(&rows[64], 32, -huge);
    std::vector<float> centroids(40 * 32, huge);
    std::fill_n(&centroids[17 * 32], 32, 2.0F);
    const std::vector<std::uint32_t> labels = labels_of(shape, rows, centroids);
    EXPECT_EQ(labels[0], 17U);
    EXPECT_EQ(labels[1], 0U);
    EXPECT_LT(labels[2], 40U);
  }
}

}  // namespace
}  // namespace terrace::kernels::host
