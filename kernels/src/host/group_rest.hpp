// The means of groups without some of their rows.
#pragma once

#include <cstddef>
#include <span>

#include "terrace/core/dtype.hpp"

namespace terrace::kernels::host {

struct GroupRest {
  const std::byte* mean = nullptr;
  std::size_t size = 0;                    ///< rows that the mean is of
  const std::byte* const* rows = nullptr;  ///< [count]: those to leave out
  std::size_t count = 0;                   ///< below `size`
  std::byte* rest = nullptr;               ///< out: the mean of the others
};

/// Writes (size * mean - the sum of the rows) / (size - count) of each group; rows of `numbers`
/// elements, any alignment.
void average_rests(Dtype dtype, std::size_t numbers, std::span<const GroupRest> groups) noexcept;

}  // namespace terrace::kernels::host
