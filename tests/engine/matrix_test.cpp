#include "terrace/engine/matrix.hpp"

#include <gmock/gmock.h>

#include "random_floats.hpp"
#include "thread_parallel.hpp"

namespace terrace::engine {
namespace {

struct Shape {
  std::size_t rows, outputs, inputs;
};

// One row, few rows, and more rows and outputs than a tile.
constexpr Shape shapes[] = {{1, 1, 1}, {1, 700, 256}, {2, 5, 3}, {7, 300, 40}, {200, 513, 33}};

std::vector<float> product_of(const Shape& shape, bool accumulate, Parallel& parallel) {
  const auto weight = random_floats(shape.outputs * shape.inputs, 1);
  const auto source = random_floats(shape.rows * shape.inputs, 2);
  std::vector<float> target(shape.rows * shape.outputs, 3.0F);
  multiply({.weight = weight.data(),
            .source = source.data(),
            .target = target.data(),
            .rows = shape.rows,
            .outputs = shape.outputs,
            .inputs = shape.inputs,
            .accumulate = accumulate},
           parallel);
  return target;
}

TEST(Multiply, AgreesWithDouble) {
  keep_blas_on_one_thread();
  Serial serial;
  for (const Shape& shape : shapes) {
    const auto weight = random_floats(shape.outputs * shape.inputs, 1);
    const auto source = random_floats(shape.rows * shape.inputs, 2);
    for (const bool accumulate : {false, true}) {
      const auto target = product_of(shape, accumulate, serial);
      for (std::size_t i = 0; i < target.size(); ++i) {
        const std::size_t row = i / shape.outputs;
        const std::size_t output = i % shape.outputs;
        double sum = accumulate ? 3 : 0;
        for (std::size_t k = 0; k < shape.inputs; ++k) {
          sum += double(source[row * shape.inputs + k]) * weight[output * shape.inputs + k];
        }
        ASSERT_NEAR(target[i], sum, 1e-5) << shape.rows << "x" << shape.outputs << " " << i;
      }
    }
  }
}

TEST(Multiply, GivesTheSameBitsOnAnyNumberOfThreads) {
  keep_blas_on_one_thread();
  Serial serial;
  for (const Shape& shape : shapes) {
    const auto expected = product_of(shape, true, serial);
    for (const std::size_t threads : {2U, 4U}) {
      ThreadParallel parallel(threads);
      EXPECT_EQ(product_of(shape, true, parallel), expected) << threads;
    }
  }
}

}  // namespace
}  // namespace terrace::engine
