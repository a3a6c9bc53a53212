#pragma once

#include "terrace/core/backend.hpp"

namespace terrace {

// Buffers that follow a sequence's length grow by a quarter, so that decoding seldom allocates.
[[nodiscard]] constexpr std::size_t with_room(std::size_t count) noexcept {
  return count + count / 4 + 256;
}

/// Makes a device buffer at least so large; what it held is gone where it grows. The old memory is
/// given back first: it may be all there is. Errors: out_of_memory; the buffer is empty then.
[[nodiscard]] inline Status reserve_buffer(Backend& backend, Buffer& buffer, std::size_t bytes,
                                           Purpose purpose) {
  if (bytes == 0 || buffer.bytes() >= bytes) return {};
  buffer.reset();
  TERRACE_ASSIGN(buffer, backend.allocate({.bytes = bytes, .purpose = purpose}));
  return {};
}

}  // namespace terrace
