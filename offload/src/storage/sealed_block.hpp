// Blocks that begin with a checksum (XXH3) of the rest of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::offload {

inline constexpr std::size_t seal_bytes = sizeof(std::uint64_t);

/// Writes the checksum of the bytes that follow it.
void seal(std::span<std::byte> block) noexcept;

/// Returns whether a block is as it was sealed.
[[nodiscard]] bool is_sealed(std::span<const std::byte> block) noexcept;

}  // namespace terrace::offload
