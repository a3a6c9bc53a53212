// Codes of a second stage: see terrace/kernels/refine.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "host/refine_codes.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/kernels/refine.hpp"
#include "terrace/kernels/rotation.hpp"

namespace terrace::kernels {

RefineQuery round_query(const float* query, std::size_t dims, float* numbers, float most) noexcept {
  std::copy_n(query, dims, numbers);
  rotate(numbers, dims);
  float largest = 0;
  bool finite = true;
  for (std::size_t i = 0; i < dims; ++i) {
    largest = std::max(largest, std::abs(numbers[i]));
    finite = finite && std::isfinite(numbers[i]);
  }
  if (!finite || largest == 0) {
    std::fill_n(numbers, dims, 0.0F);
    return {finite ? 0.0F : std::numeric_limits<float>::quiet_NaN()};
  }
  const float unit = largest / most;
  for (std::size_t i = 0; i < dims; ++i) {
    // A number near the least ones has no unit that divides it evenly.
    const float number = std::nearbyint(numbers[i] / unit);
    numbers[i] = std::clamp(number, -most, most);
  }
  return {unit};
}

namespace host {
namespace {

/// The boundary between 1 and 3 in numbers of two bits, in units of the root mean square: the
/// evenly spaced levels with the least error for normal numbers (Max 1960).
constexpr double outer_level = 0.9957;

class HeadCodes {
 public:
  explicit HeadCodes(const RefineEncode& op) noexcept : op_(op) {}

  void write() const noexcept {
    const std::size_t dims = op_.shape.head_dim;
    ChunkWalk walk(op_.index);
    for (std::size_t i = 0; i < op_.tokens.size(); ++i) {
      walk.go_to(op_.tokens.begin + i);
      const RefinePlace place(op_.shape, op_.codes, op_.index, op_.head, walk);
      float* const rest = op_.keys + i * dims;
      subtract(place, walk.chunk(), rest);
      rotate(rest, dims);
      write_code(place, rest);
    }
  }

 private:
  /// Leaves what the index does not have of a key.
  void subtract(const RefinePlace& place, std::byte* chunk, float* key) const noexcept {
    const PqShape& pq = op_.codes.pq;
    const std::size_t dims = op_.shape.head_dim;
    if (pq.subspaces == 0) {
      const float* const vector = vector_in(chunk, op_.shape, op_.codes, op_.head);
      for (std::size_t i = 0; i < dims; ++i) key[i] -= vector[i];
      return;
    }
    const std::size_t width = dims / pq.subspaces;
    for (std::size_t j = 0; j < pq.subspaces; ++j) {
      const float* const centroid =
          reinterpret_cast<const float*>(op_.index.fixed) +
          ((op_.head * pq.subspaces + j) * pq.centroids() + place.pq_code(pq, op_.head, j)) * width;
      for (std::size_t i = 0; i < width; ++i) key[j * width + i] -= centroid[i];
    }
  }

  void write_code(const RefinePlace& place, const float* rotated) const noexcept {
    const std::size_t dims = op_.shape.head_dim;
    double squares = 0;
    for (std::size_t i = 0; i < dims; ++i) squares += double{rotated[i]} * double{rotated[i]};
    const double outer = outer_level * std::sqrt(squares / static_cast<double>(dims));
    const std::size_t bytes = op_.codes.code_bytes(op_.shape);
    std::memset(place.code(), 0, bytes);
    double product = 0;
    for (std::size_t i = 0; i < dims; ++i) {
      const double number = double{rotated[i]};
      const bool negative = std::signbit(number);
      const bool far = op_.codes.bits == 2 && std::abs(number) >= outer;
      const int level = (far ? 3 : 1) * (negative ? -1 : 1);
      product += number * level;
      const unsigned code = op_.codes.bits == 2 ? static_cast<unsigned>((level + 3) / 2)
                                                : static_cast<unsigned>((level + 1) / 2);
      place.code()[i % bytes] |= static_cast<std::byte>(code << (i / bytes * op_.codes.bits));
    }
    const double factor = product > 0 ? squares / product : 0 * squares;
    place.set_factor(static_cast<float>(factor));
  }

  const RefineEncode& op_;
};

}  // namespace

void refine_encode(const RefineEncode& op) noexcept { HeadCodes(op).write(); }

}  // namespace host
}  // namespace terrace::kernels
