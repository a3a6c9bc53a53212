// A layer of a small network, for many inputs at once.
#pragma once

#include <cstddef>

namespace terrace::kernels::host {

/// target[r, o] = bias[o] + sum over i of source[r, i] * weight[i, o].
struct DenseLayer {
  const float* source = nullptr;  ///< [rows, source_stride]; the first `inputs` are read
  std::size_t source_stride = 0;  ///< elements
  const float* weight = nullptr;  ///< [inputs, outputs]
  const float* bias = nullptr;    ///< [outputs]
  float* target = nullptr;        ///< out [rows, outputs]; overlaps nothing
  std::size_t rows = 0;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  bool rectify = false;  ///< ReLU: what is below 0 becomes 0
};

/// Computes the layer. The order of additions is that of the inputs: a row's bits do not depend on
/// the rows beside it.
///
/// Threads  the caller's; allocates nothing
/// Cost     2 * rows * inputs * outputs operations; all weights are read once
/// Tests    tests/kernels/dense_layer_test.cpp
void dense_layer(const DenseLayer& layer) noexcept;

}  // namespace terrace::kernels::host
