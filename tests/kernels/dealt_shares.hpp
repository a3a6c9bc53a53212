// Shares of two KV heads of which the second takes three times as many rows as the first. Not on
// the stack: a device does not reach it.
#pragma once

#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace::testing {

inline const std::vector<std::uint32_t> dealt_shares{head_share_one / 2, 2 * head_share_one};

}  // namespace terrace::testing
