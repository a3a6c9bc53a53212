// Arithmetic of retention: attention weights of queries, and rows that become one.
#include "terrace/kernels/retained_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "terrace/core/dtype.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::kernels::host {
namespace {

/// Rows of one KV head, and queries of some tokens.
class Scene {
 public:
  Scene(Dtype dtype, std::size_t head_dim, std::size_t count, std::size_t tokens)
      : shape{.layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = head_dim, .dtype = dtype},
        memory_(count * shape.row_bytes()) {
    Rng rng(count + head_dim);
    for (std::size_t row = 0; row < count; ++row) {
      rows.push_back(memory_.data() + row * shape.row_bytes());
      bias.push_back(static_cast<float>(rng.uniform() * 3));
      for (std::size_t i = 0; i < 2 * head_dim; ++i) {
        store_f32(memory_.data() + row * shape.row_bytes(), dtype, i,
                  static_cast<float>(rng.uniform() * 2 - 1));
      }
    }
    for (std::size_t i = 0; i < tokens * stride(); ++i) {
      queries.push_back(static_cast<float>(rng.uniform() * 6 - 3));
    }
  }

  [[nodiscard]] std::size_t stride() const noexcept { return shape.query_heads * shape.head_dim; }

  void set_key(std::size_t row, float value) {
    store_f32(memory_.data() + row * shape.row_bytes(), shape.dtype, 0, value);
  }

  /// Weights [group, rows] as they are by definition.
  [[nodiscard]] std::vector<double> expected(std::size_t biased, std::size_t seen) const {
    std::vector<double> sums(shape.group() * rows.size());
    for (std::size_t query = 0; query < queries.size() / shape.head_dim; ++query) {
      const std::size_t token = query / shape.query_heads;
      const std::size_t head = query % shape.query_heads;
      if (head >= shape.group()) continue;
      std::vector<double> powers;
      double total = 0;
      for (std::size_t row = 0; row < std::min(rows.size(), seen + token); ++row) {
        double dot = 0;
        for (std::size_t i = 0; i < shape.head_dim; ++i) {
          dot += static_cast<double>(queries[query * shape.head_dim + i]) *
                 static_cast<double>(load_f32(rows[row], shape.dtype, i));
        }
        const double added = row < biased ? static_cast<double>(bias[row]) : 0;
        powers.push_back(std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim)) + added));
        total += powers.back();
      }
      for (std::size_t row = 0; row < powers.size(); ++row) {
        sums[head * rows.size() + row] += powers[row] / total;
      }
    }
    return sums;
  }

  [[nodiscard]] std::vector<float> weights(std::size_t biased, std::size_t seen) const {
    std::vector<float> sums(shape.group() * rows.size());
    add_query_weights({.shape = shape,
                       .queries = queries.data(),
                       .query_stride = stride(),
                       .tokens = queries.size() / stride(),
                       .rows = rows,
                       .bias = std::span(bias).first(biased),
                       .seen = seen,
                       .sums = sums.data(),
                       .stride = rows.size()});
    return sums;
  }

  KvShape shape;
  std::vector<const std::byte*> rows;
  std::vector<float> bias;
  std::vector<float> queries;

 private:
  std::vector<std::byte> memory_;
};

TEST(QueryWeights, AreSoftmaxOverTheRowsThatEachTokenSees) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    for (const std::size_t count : {1U, 7U, 300U, 515U}) {
      const Scene scene(dtype, 24, count, 5);
      const std::size_t seen = count < 5 ? 0 : count - 4;
      const std::vector<double> expected = scene.expected(count / 2, seen);
      const std::vector<float> weights = scene.weights(count / 2, seen);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(weights[i], expected[i], 2e-5) << "of " << count << ", at " << i;
      }
    }
  }
}

TEST(QueryWeights, AreAddedToWhatIsThere) {
  const Scene scene(Dtype::f16, 16, 20, 3);
  std::vector<float> sums(scene.shape.group() * 20, 100);
  add_query_weights({.shape = scene.shape,
                     .queries = scene.queries.data(),
                     .query_stride = scene.stride(),
                     .tokens = 3,
                     .rows = scene.rows,
                     .seen = 18,
                     .sums = sums.data(),
                     .stride = 20});
  const std::vector<float> alone = scene.weights(0, 18);
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], 100 + alone[i], 1e-4);
}

TEST(QueryWeights, OfAQueryThatHasNoneAreNone) {
  for (const float odd :
       {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Scene scene(Dtype::f32, 16, 9, 1);
    for (float& query : scene.queries) query = std::fabs(query);
    for (std::size_t row = 0; row < 9; ++row) scene.set_key(row, odd);
    for (const float sum : scene.weights(0, 9)) EXPECT_EQ(sum, 0);
  }
}

TEST(MergedRow, IsTheMeanWeightedByDegrees) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    const Scene scene(dtype, 24, 5, 1);
    const std::vector<std::uint32_t> degrees{1, 7, 2, 1, 3};
    std::vector<std::byte> merged(scene.shape.row_bytes());
    merge_rows(
        {.shape = scene.shape, .rows = scene.rows, .degrees = degrees, .merged = merged.data()});
    for (std::size_t i = 0; i < 48; ++i) {
      double mean = 0;
      for (std::size_t row = 0; row < 5; ++row) {
        mean += degrees[row] * static_cast<double>(load_f32(scene.rows[row], dtype, i)) / 14;
      }
      EXPECT_NEAR(load_f32(merged.data(), dtype, i), mean, dtype == Dtype::bf16 ? 4e-3 : 5e-4);
    }
  }
}

TEST(MergedRow, OfOneRowIsThatRow) {
  const Scene scene(Dtype::f16, 16, 2, 1);
  const std::uint32_t degree = 9;
  std::vector<std::byte> merged(scene.shape.row_bytes());
  merge_rows({.shape = scene.shape,
              .rows = std::span(scene.rows).subspan(1),
              .degrees = {&degree, 1},
              .merged = merged.data()});
  EXPECT_TRUE(std::equal(merged.begin(), merged.end(), scene.rows[1]));
}

}  // namespace
}  // namespace terrace::kernels::host
