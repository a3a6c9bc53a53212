// The largest k of n weights, without sorting them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::host {

/// Writes the indices of the largest weights, ascending, and returns how many: min(k, n). So a k
/// above n gives all, and k = 0 none (decision 0055).
///
/// Exact: ties go to the lower index, NaN ranks below -inf, -0 equals +0. A sample at fixed
/// places brackets the k-th largest weight; one pass keeps what lies in the bracket, and the
/// threshold is found among that; a second pass writes the indices.
///
/// Shapes   weights [n]; scratch [n]; ids [min(k, n)], nothing beyond is written
/// Memory   no overlap. With none to choose (n or k is 0) pointers may be null, and scratch where
///          all are chosen; else a null pointer is a programming error
/// Limits   n < 2^32; allocates nothing
/// Cost     two passes over the weights; O(n) whatever they are
/// Threads  reentrant
/// Tests    tests/kernels/topk_test.cpp
std::size_t select_topk(const float* weights, std::size_t n, std::size_t k, std::uint32_t* scratch,
                        std::uint32_t* ids) noexcept;

}  // namespace terrace::kernels::host
