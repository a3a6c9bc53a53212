// Products with weight matrices, on many threads.
#pragma once

#include <cstddef>

#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"

namespace terrace::engine {

/// target[r, o] (+)= sum over i of source[r, i] * weight[o, i].
struct MatrixProduct {
  const float* weight = nullptr;  ///< [outputs, inputs]
  const float* source = nullptr;  ///< [rows, inputs]
  float* target = nullptr;        ///< [rows, outputs]; must not overlap source
  std::size_t rows = 0;
  std::size_t outputs = 0;
  std::size_t inputs = 0;
  bool accumulate = false;  ///< adds to target: residual connections for nothing
};

/// Rows that are multiplied at once.
inline constexpr std::size_t multiply_tile_rows = 128;

/// Computes `product` in tiles cut by its size alone, so that no bit depends on the threads. A row
/// of a whole tile of multiply_tile_rows rows has bits that depend on its numbers and on its place
/// in the tile.
///
/// Limits   extents < 2^31; allocates nothing
/// Cost     2 * rows * outputs * inputs operations; one row reads each weight once
/// Tests    tests/engine/matrix_test.cpp
void multiply(const MatrixProduct& product, Parallel& parallel);

/// Tells OpenBLAS to leave threads to `Parallel`. For the whole process; calling again is free.
void keep_blas_on_one_thread();

/// Asks whether OpenBLAS will find room to work in for so many threads: without room it tries for
/// ever. To be asked before the first product.
///
/// Errors   out_of_memory: the process has too little address space left
[[nodiscard]] Status check_room_for_blas(std::size_t threads);

}  // namespace terrace::engine
