// Shares of two KV heads; the second takes three times as many rows as the first. Not on the stack,
// because a device cannot read it.
#pragma once

#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace::testing {

inline const std::vector<std::uint32_t> dealt_shares{head_share_one / 2, 2 * head_share_one};

}  // namespace terrace::testing
