// Groups of a page: see terrace/kernels/estimate.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "host/convert_numbers.hpp"
#include "host/group_place.hpp"
#include "host/row_sums.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::host {
namespace {

void divide(std::span<float> numbers, std::size_t by) noexcept {
  const auto divisor = static_cast<float>(by);
  for (float& number : numbers) number /= divisor;
}

}  // namespace

bool fits_a_group(const std::byte* row, Dtype dtype, std::size_t count) noexcept {
  std::array<float, 2 * KvShape::head_dim_max> numbers;
  convert_numbers(row, dtype, count, reinterpret_cast<std::byte*>(numbers.data()), Dtype::f32);
  constexpr float largest = std::numeric_limits<float>::max() / GroupShape::page_tokens_max;
  bool fits = true;
  for (std::size_t i = 0; i < count; ++i) fits &= std::abs(numbers[i]) <= largest;
  return fits;
}

void average_groups(const AverageGroups& op) noexcept {
  const std::size_t numbers = 2 * op.shape.head_dim;
  const GroupPlace to(op.shape, op.groups, op.index, op.head, op.page);
  std::ranges::copy(op.group_of, to.labels());
  std::array<float, 2 * KvShape::head_dim_max> mean;
  for (std::size_t group = 0; group < op.groups.groups; ++group) {
    std::fill_n(mean.data(), numbers, 0.0F);
    std::uint16_t size = 0;
    for (std::size_t i = 0; i < op.group_of.size(); ++i) {
      if (op.group_of[i] != group) continue;
      const std::size_t position = op.index.first_token + op.page * op.groups.page_tokens + i;
      add_row(row_address(op.shape, op.rows, op.head, position), op.shape.dtype, 1, numbers,
              mean.data());
      ++size;
    }
    if (size > 0) divide(std::span(mean).first(numbers), size);
    convert_numbers(reinterpret_cast<const std::byte*>(mean.data()), Dtype::f32, numbers,
                    to.means() + group * op.shape.row_bytes(), op.shape.dtype);
    to.sizes()[group] = size;
  }
}

}  // namespace terrace::kernels::host
