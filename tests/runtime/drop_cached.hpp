#pragma once

#include <cstdint>

#include "terrace/runtime/sequence.hpp"

namespace terrace::testing {

/// Has a sequence forget a share of what it has cached, chosen by `seed`. Errors: not idle.
Status drop_cached(Sequence& sequence, double share, std::uint64_t seed);

}  // namespace terrace::testing
