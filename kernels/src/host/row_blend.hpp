// Weighted sums of rows that lie anywhere.
#pragma once

#include <cstddef>

#include "terrace/core/shape.hpp"

namespace terrace::kernels::host {

/// Rows, and sums over them with weights of their own.
struct RowBlend {
  Dtype dtype = Dtype::f16;
  std::size_t begin = 0;                   ///< of what is added of each row, bytes
  std::size_t numbers = 0;                 ///< that are added: at most KvShape::head_dim_max
  const std::byte* const* rows = nullptr;  ///< [row_count]
  std::size_t row_count = 0;
  const float* weights = nullptr;  ///< [sum_count, weight_stride]
  std::size_t weight_stride = 0;
  float* sums = nullptr;  ///< in and out [sum_count, sum_stride]
  std::size_t sum_count = 0;
  std::size_t sum_stride = 0;
};

/// Adds weight * row to the sums. A sum's bits do not depend on the other sums.
void blend_rows(const RowBlend& blend) noexcept;

}  // namespace terrace::kernels::host
