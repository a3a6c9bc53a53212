// The largest k of n weights, without sorting them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::host {

/// Writes the indices of the largest weights, ascending, and returns how many: min(k, n). A k above
/// n gives all indices, and k = 0 gives no index (decision 0055).
///
/// Exact: ties go to the lower index, NaN ranks below -inf, -0 equals +0. A sample at fixed
/// places brackets the k-th largest weight; one pass keeps what lies in the bracket, and the
/// threshold is found among that; a second pass writes the indices.
///
/// Shapes   weights [n]; scratch [n]; ids [min(k, n)], nothing beyond is written
/// Memory   no overlap. If n or k is 0 pointers may be null; scratch may be null, too, if all are
///          chosen. Any other null pointer is a programming error
/// Limits   n < 2^32; allocates nothing
/// Cost     two passes over the weights; O(n) for all weights
/// Threads  reentrant
/// Tests    tests/kernels/topk_test.cpp
std::size_t select_topk(const float* weights, std::size_t n, std::size_t k, std::uint32_t* scratch,
                        std::uint32_t* ids) noexcept;

}  // namespace terrace::kernels::host
