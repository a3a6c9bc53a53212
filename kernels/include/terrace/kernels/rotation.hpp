// A fixed random rotation: signs drawn by place, and Hadamard transforms. The rotation spreads a
// vector's length over all its elements, so that few bits of each element say much.
//
//   rotate(key, head_dim);    // in place; queries rotated alike give the same products
//
// If the number of elements is a power of two, one transform takes them all. Otherwise transforms
// of the next lower power take the first elements, then the last, then the first again. Source:
// randomized Hadamard transforms, as in Gao and Long, RaBitQ, 2024. The same bits everywhere: a
// device does the same additions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels {

/// Parts of the rotation of a vector; each takes `size` elements from `begin` on.
struct RotationRound {
  std::size_t begin = 0;
  std::size_t size = 0;  ///< a power of two
};

/// Returns the elements of a round: the largest power of two within `dims`, which is at least 1.
/// The code uses no function of `<bit>`: nvcc compiles calls of them to 0 in device code.
constexpr std::size_t rotation_size(std::size_t dims) noexcept {
  std::size_t size = 1;
  while (size <= dims / 2) size *= 2;
  return size;
}

constexpr std::size_t rotation_rounds(std::size_t dims) noexcept {
  return rotation_size(dims) == dims ? 1 : 3;
}

constexpr RotationRound rotation_round(std::size_t dims, std::size_t round) noexcept {
  const std::size_t size = rotation_size(dims);
  return {round == 1 ? dims - size : 0, size};
}

/// Returns -1 or 1: what an element is multiplied by before a round. `seed` gives another rotation.
constexpr float rotation_sign(std::size_t round, std::size_t element, std::uint64_t seed) noexcept {
  std::uint64_t bits = (seed << 20U) + (static_cast<std::uint64_t>(round) << 16U) + element + 1;
  bits *= 0x9e3779b97f4a7c15U;
  bits ^= bits >> 32U;
  bits *= 0xd6e8feb86659fd93U;
  return (bits >> 63U) != 0 ? -1.0F : 1.0F;
}

/// The rotation that codes are made with.
inline constexpr std::uint64_t rotation_seed = 1;

/// Rotates a vector in place. Lengths are kept, up to rounding.
void rotate(float* vector, std::size_t dims, std::uint64_t seed = rotation_seed) noexcept;

}  // namespace terrace::kernels
