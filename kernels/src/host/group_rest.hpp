// The mean of a group without some of its rows.
#pragma once

#include <cstddef>

#include "terrace/core/dtype.hpp"

namespace terrace::kernels::host {

struct GroupRest {
  Dtype dtype = Dtype::f16;
  std::size_t numbers = 0;  ///< of a row
  const std::byte* mean = nullptr;
  std::size_t size = 0;                    ///< rows that the mean is of
  const std::byte* const* rows = nullptr;  ///< [count]: those to leave out
  std::size_t count = 0;                   ///< below `size`
  std::byte* rest = nullptr;               ///< out: the mean of the others
};

/// Writes (size * mean - the sum of the rows) / (size - count); any alignment.
void average_rest(const GroupRest& op) noexcept;

}  // namespace terrace::kernels::host
