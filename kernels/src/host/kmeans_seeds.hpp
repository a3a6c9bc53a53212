// The start of k-means: rows that become the first centroids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/kernels/kmeans.hpp"

namespace terrace::kernels::host {

/// Finds distinct rows among `candidates`, in their order, and stops when `distinct` is full.
///
/// Shapes   distinct: as many as are wanted; slots: at least twice as many, a power of two
/// Returns how many were found. Rows are compared by their bits.
std::size_t find_distinct_rows(const KmeansRows& input, std::span<const std::uint32_t> candidates,
                               std::span<std::uint32_t> distinct,
                               std::span<std::uint32_t> slots) noexcept;

/// Moves `count` candidates drawn without replacement to the front. count <= candidates.size().
void draw_rows(std::span<std::uint32_t> candidates, std::size_t count, std::uint64_t seed) noexcept;

}  // namespace terrace::kernels::host
