// Signs of rests: see terrace/kernels/signs.hpp.
#include <array>
#include <cmath>

#include "host/convert_numbers.hpp"
#include "host/sign_codes.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/kernels/rotation.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::kernels::host {
namespace {

/// Leaves of a key what the mean does not have.
void subtract_mean(const std::byte* mean, const KvShape& shape, float* key) noexcept {
  std::array<float, KvShape::head_dim_max> numbers;
  convert_numbers(mean, shape.dtype, shape.head_dim, reinterpret_cast<std::byte*>(numbers.data()),
                  Dtype::f32);
  for (std::size_t i = 0; i < shape.head_dim; ++i) key[i] -= numbers[i];
}

/// Returns the factor for products with the signs of a rest.
float factor_of(const float* rest, std::size_t dims) noexcept {
  double squares = 0;
  double product = 0;
  for (std::size_t i = 0; i < dims; ++i) {
    squares += double{rest[i]} * double{rest[i]};
    product += std::abs(double{rest[i]});
  }
  return static_cast<float>(product > 0 ? squares / product : 0 * squares);
}

void write_signs(const float* rest, std::size_t dims, std::size_t half, std::size_t token,
                 std::uint8_t* signs) noexcept {
  const unsigned shift = token < half ? 0 : 4;
  for (std::size_t quad = 0; quad < divide_up(dims, std::size_t{4}); ++quad) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < 4 && 4 * quad + i < dims; ++i) {
      bits |= std::signbit(rest[4 * quad + i]) ? 0U : 1U << i;
    }
    std::uint8_t& byte = signs[quad * half + token % half];
    byte = static_cast<std::uint8_t>((byte & ~(15U << shift)) | bits << shift);
  }
}

}  // namespace

void sign_encode(const SignEncode& op) noexcept {
  const GroupShape& groups = op.signs.groups;
  const std::size_t dims = op.shape.head_dim;
  for (std::size_t i = 0; i < op.tokens.size(); ++i) {
    const std::size_t number = op.tokens.begin + i - op.index.first_token;
    const std::size_t token = number % groups.page_tokens;
    const SignPlace page(op.shape, op.signs, op.index, op.head, number / groups.page_tokens);
    float* const rest = op.keys + i * dims;
    if (!op.grouped) page.groups().labels()[token] = GroupShape::none;
    const std::size_t group = page.groups().labels()[token];
    if (group != GroupShape::none) {
      subtract_mean(page.groups().means() + group * op.shape.row_bytes(), op.shape, rest);
    }
    rotate(rest, dims);
    page.factors()[token] = f32_to_bf16(factor_of(rest, dims));
    write_signs(rest, dims, groups.page_tokens / 2, token, page.signs());
  }
}

}  // namespace terrace::kernels::host
