// Which of its lives the machine is in.
#pragma once

#include <cstdint>

namespace terrace::offload {

/// Returns a number that is another one once the machine has begun anew; 0 where the system says
/// none.
[[nodiscard]] std::uint64_t boot_mark();

}  // namespace terrace::offload
