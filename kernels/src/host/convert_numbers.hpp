// Numbers from one type to another, with the bits of the scalar conversions.
#pragma once

#include <cstddef>

#include "terrace/core/dtype.hpp"

namespace terrace::kernels::host {

/// Converts `count` numbers that lie side by side; any alignment.
void convert_numbers(const std::byte* source, Dtype from, std::size_t count, std::byte* target,
                     Dtype to) noexcept;

}  // namespace terrace::kernels::host
