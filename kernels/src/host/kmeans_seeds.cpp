#include "host/kmeans_seeds.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "terrace/core/rng.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::uint32_t free_slot = std::numeric_limits<std::uint32_t>::max();

/// Mixes the bits of a row; any mixing will do, for equal hashes are compared in full.
std::uint64_t hash_row(const float* row, std::size_t dims) noexcept {
  std::uint64_t hash = dims;
  for (std::size_t i = 0; i < dims; ++i) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(row[i])) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

std::size_t find_distinct_rows(const KmeansRows& input, std::span<const std::uint32_t> candidates,
                               std::span<std::uint32_t> distinct,
                               std::span<std::uint32_t> slots) noexcept {
  const auto row = [&input](std::uint32_t i) { return input.rows + i * input.dims; };
  std::ranges::fill(slots, free_slot);
  std::size_t found = 0;
  for (const std::uint32_t candidate : candidates) {
    if (found == distinct.size()) break;
    std::size_t slot = hash_row(row(candidate), input.dims) & (slots.size() - 1);
    while (slots[slot] != free_slot &&
           std::memcmp(row(slots[slot]), row(candidate), input.dims * sizeof(float)) != 0) {
      slot = (slot + 1) & (slots.size() - 1);
    }
    if (slots[slot] != free_slot) continue;
    slots[slot] = candidate;
    distinct[found++] = candidate;
  }
  return found;
}

void draw_rows(std::span<std::uint32_t> candidates, std::size_t count,
               std::uint64_t seed) noexcept {
  Rng rng(seed);
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(candidates[i], candidates[i + rng.below(candidates.size() - i)]);
  }
}

}  // namespace terrace::kernels::host
