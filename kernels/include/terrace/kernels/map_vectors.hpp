// Vectors times square matrices, one for each KV head.
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

/// Writes vector * map, summed in the order of the vector's elements.
///
/// Shapes   vector [dims]; map [dims, dims], row-major; mapped [dims]; no overlap
/// Memory   a null pointer is a programming error unless dims is 0
void map_vector(const float* vector, const float* map, std::size_t dims, float* mapped) noexcept;

/// Maps each query head's query by the matrix of its KV head.
///
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Tests    tests/kernels/page_select_test.cpp
void map_queries(const MapQueries& op, Parallel& threads);

}  // namespace terrace::kernels::host
