// Layers of small networks against sums in double.
#include "terrace/kernels/dense_layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace::kernels::host {
namespace {

struct Shape {
  std::size_t rows, inputs, outputs;
};

/// A layer's numbers, made up, between -1 and 1. Rows are farther apart than they are long.
class MadeUpDense {
 public:
  explicit MadeUpDense(const Shape& shape) : shape_(shape) {
    Rng rng(shape.rows * 1000003 + shape.inputs * 1009 + shape.outputs);
    const auto fill = [&](std::vector<float>& numbers, std::size_t count) {
      numbers.resize(count);
      for (float& number : numbers) number = static_cast<float>(rng.uniform() * 2 - 1);
    };
    fill(source_, shape.rows * stride());
    fill(weight_, shape.inputs * shape.outputs);
    fill(bias_, shape.outputs);
  }

  [[nodiscard]] std::size_t stride() const noexcept { return shape_.inputs + 3; }

  /// Rows from `first` on.
  [[nodiscard]] std::vector<float> run(bool rectify, std::size_t first, std::size_t rows) const {
    std::vector<float> target(rows * shape_.outputs + 1, guard);
    dense_layer({.source = source_.data() + first * stride(),
                 .source_stride = stride(),
                 .weight = weight_.data(),
                 .bias = bias_.data(),
                 .target = target.data(),
                 .rows = rows,
                 .inputs = shape_.inputs,
                 .outputs = shape_.outputs,
                 .rectify = rectify});
    EXPECT_EQ(target.back(), guard);
    target.pop_back();
    return target;
  }

  [[nodiscard]] double sum(std::size_t row, std::size_t output) const {
    double sum = bias_[output];
    for (std::size_t i = 0; i < shape_.inputs; ++i) {
      sum += double{source_[row * stride() + i]} * weight_[i * shape_.outputs + output];
    }
    return sum;
  }

 private:
  static constexpr float guard = 77;
  Shape shape_;
  std::vector<float> source_, weight_, bias_;
};

// Whole tiles, tails of rows, and outputs below, at and above each number of lanes.
constexpr Shape shapes[] = {{1, 1, 1},   {4, 64, 128}, {7, 128, 1}, {5, 3, 31},   {9, 20, 33},
                            {6, 64, 48}, {3, 17, 100}, {8, 5, 16},  {64, 80, 128}};

TEST(DenseLayer, AgreesWithDouble) {
  for (const Shape& shape : shapes) {
    const MadeUpDense dense(shape);
    const auto plain = dense.run(false, 0, shape.rows);
    const auto rectified = dense.run(true, 0, shape.rows);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double sum = dense.sum(i / shape.outputs, i % shape.outputs);
      // 128 additions of numbers below 1, each rounded to 2^-24 of a sum below 128.
      ASSERT_NEAR(plain[i], sum, 2e-5) << shape.rows << "x" << shape.inputs << "x" << shape.outputs;
      ASSERT_EQ(rectified[i], std::max(plain[i], 0.0F));
    }
  }
}

TEST(DenseLayer, GivesARowTheSameBitsInAnyCompany) {
  for (const Shape& shape : shapes) {
    const MadeUpDense dense(shape);
    const auto together = dense.run(true, 0, shape.rows);
    std::vector<float> apart;
    for (std::size_t row = 0; row < shape.rows; ++row) {
      const auto one = dense.run(true, row, 1);
      apart.insert(apart.end(), one.begin(), one.end());
    }
    EXPECT_EQ(together, apart) << shape.rows << "x" << shape.inputs << "x" << shape.outputs;
  }
}

}  // namespace
}  // namespace terrace::kernels::host
