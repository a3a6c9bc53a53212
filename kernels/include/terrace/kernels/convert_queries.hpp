// Numbers of queries and outputs from one type to another: an engine's to f32 and back.
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

/// Converts the numbers of each token, with the bits of the scalar conversions
/// (terrace/core/dtype.hpp) on every instruction set.
///
/// Shapes   source, target [tokens, query_heads, head_dim]; any head_dim
/// Memory   any alignment; source and target must not overlap; what lies between tokens is not
///          touched
/// Threads  one part for each 32,768 numbers, of whole tokens; allocates nothing
/// Tests    tests/kernels/convert_queries_test.cpp
void convert_queries(const ConvertQueries& op, Parallel& threads);

}  // namespace terrace::kernels::host
