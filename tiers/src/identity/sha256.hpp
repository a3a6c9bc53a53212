// SHA-256, by libcrypto (docs/decisions/0118-names-of-chunks.md).
#pragma once

#include <cstddef>
#include <span>

#include "terrace/core/result.hpp"
#include "terrace/tiers/digest.hpp"

namespace terrace::tiers {

/// Errors   out_of_memory: the library could not compute it
[[nodiscard]] Result<Digest> sha256(std::span<const std::byte> bytes);

}  // namespace terrace::tiers
