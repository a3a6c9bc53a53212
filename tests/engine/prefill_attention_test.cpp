#include "terrace/engine/prefill_attention.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "random_floats.hpp"
#include "thread_parallel.hpp"

namespace terrace::engine {
namespace {

/// Random queries, and keys and values as they are stored.
struct Scene {
  KvShape shape;
  std::size_t first_position;
  std::size_t rows;
  std::size_t capacity;
  std::vector<float> query;
  std::vector<std::byte> kv;

  Scene(const KvShape& kv_shape, std::size_t first, std::size_t row_count)
      : shape(kv_shape), first_position(first), rows(row_count), capacity(first + row_count + 5) {
    query = random_floats(rows * shape.query_heads * shape.head_dim, 1, 2);
    const std::size_t elements = shape.kv_heads * capacity * 2 * shape.head_dim;
    const auto values = random_floats(elements, 2, 2);
    kv.resize(elements * size_bytes(shape.dtype));
    for (std::size_t i = 0; i < elements; ++i) store_f32(kv.data(), shape.dtype, i, values[i]);
    hide_the_future();
  }

  /// Rows that no query may see hold NaN: looking at them would show.
  void hide_the_future() {
    const std::size_t d = shape.head_dim;
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      for (std::size_t row = first_position + rows; row < capacity; ++row) {
        for (std::size_t i = 0; i < 2 * d; ++i) {
          store_f32(kv.data(), shape.dtype, (head * capacity + row) * 2 * d + i, NAN);
        }
      }
    }
  }

  [[nodiscard]] double at(std::size_t head, std::size_t row, std::size_t i) const {
    return load_f32(kv.data(), shape.dtype, (head * capacity + row) * 2 * shape.head_dim + i);
  }
};

std::vector<float> attend(const Scene& scene, Parallel& parallel, std::size_t lanes) {
  std::vector<float> out(scene.query.size(), NAN);
  auto attention = PrefillAttention::create(scene.shape, lanes).value();
  attention.run({.query = scene.query.data(),
                 .kv = scene.kv.data(),
                 .out = out.data(),
                 .capacity = scene.capacity,
                 .first_position = scene.first_position,
                 .rows = scene.rows},
                parallel);
  return out;
}

/// One head of one row, in double.
std::vector<double> attend_naively(const Scene& scene, std::size_t row, std::size_t query_head) {
  const std::size_t d = scene.shape.head_dim;
  const std::size_t head = query_head / scene.shape.group();
  const float* query = scene.query.data() + (row * scene.shape.query_heads + query_head) * d;
  std::vector<double> sum(d);
  double denominator = 0;
  for (std::size_t key = 0; key <= scene.first_position + row; ++key) {
    double score = 0;
    for (std::size_t i = 0; i < d; ++i) score += query[i] * scene.at(head, key, i);
    const double weight = std::exp(score / std::sqrt(double(d)));
    denominator += weight;
    for (std::size_t i = 0; i < d; ++i) sum[i] += weight * scene.at(head, key, d + i);
  }
  for (double& value : sum) value /= denominator;
  return sum;
}

void expect_right(const Scene& scene, const std::vector<float>& out) {
  const std::size_t d = scene.shape.head_dim;
  const std::size_t step = scene.rows > 40 ? 17 : 1;  // enough rows to meet every tile border
  for (std::size_t row = 0; row < scene.rows; row += step) {
    for (std::size_t head = 0; head < scene.shape.query_heads; ++head) {
      const auto expected = attend_naively(scene, row, head);
      for (std::size_t i = 0; i < d; ++i) {
        // Sums of values up to 2 over some hundred keys, in f32.
        ASSERT_NEAR(out[(row * scene.shape.query_heads + head) * d + i], expected[i], 2e-5)
            << "first " << scene.first_position << " row " << row << " head " << head;
      }
    }
  }
}

TEST(PrefillAttention, AgreesWithDouble) {
  const KvShape shapes[] = {{1, 4, 2, 64, Dtype::f16},   {1, 2, 2, 64, Dtype::f32},
                            {1, 8, 2, 128, Dtype::bf16}, {1, 9, 3, 20, Dtype::f16},
                            {1, 5, 1, 2, Dtype::f32},    {1, 300, 1, 6, Dtype::bf16}};
  Serial serial;
  for (const KvShape& shape : shapes) {
    for (const auto& [first, rows] : {std::pair<std::size_t, std::size_t>{0, 1},
                                      {0, 70},
                                      {63, 2},
                                      {64, 64},
                                      {130, 150},
                                      {200, 1}}) {
      const Scene scene(shape, first, rows);
      SCOPED_TRACE(fmt::format("{} heads on {}, head_dim {}, {}", shape.query_heads, shape.kv_heads,
                               shape.head_dim, to_string(shape.dtype)));
      expect_right(scene, attend(scene, serial, 1));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PrefillAttention, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Scene scene({1, 6, 2, 64, Dtype::f16}, 300, 400);
  Serial serial;
  const auto expected = attend(scene, serial, 1);
  for (const std::size_t threads : {2U, 4U}) {
    ThreadParallel parallel(threads);
    EXPECT_EQ(attend(scene, parallel, threads), expected) << threads;
    EXPECT_EQ(attend(scene, parallel, 1), expected) << threads;
  }
}

TEST(PrefillAttention, SurvivesScoresThatOverflowWithoutAShift) {
  Scene scene({1, 2, 1, 64, Dtype::f32}, 0, 100);
  for (float& value : scene.query) value *= 200;
  Serial serial;
  for (const float value : attend(scene, serial, 1)) {
    ASSERT_TRUE(std::isfinite(value));
    ASSERT_LE(std::abs(value), 2.001F);
  }
}

TEST(PrefillAttention, RefusesAShapeItCannotTake) {
  EXPECT_EQ(PrefillAttention::create({1, 3, 2, 64, Dtype::f16}, 1).error().code,
            Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace::engine
