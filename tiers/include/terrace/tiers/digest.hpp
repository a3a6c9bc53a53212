// A SHA-256 digest: the form in which namespaces and chains of chunks are told apart.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace terrace::tiers {

/// The 32 bytes of a SHA-256 digest, in the order in which the standard prints them.
using Digest = std::array<std::byte, 32>;

/// Returns 64 lower-case hexadecimal digits.
[[nodiscard]] std::string to_string(const Digest& digest);

}  // namespace terrace::tiers
