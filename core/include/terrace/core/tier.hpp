// The tiers of memory, and the purposes of allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace {

enum class Tier : std::uint8_t { device, host, nvme, remote };

/// Why memory was allocated, so that accounting can report it by purpose.
enum class Purpose : std::uint8_t {
  kv,
  index,
  cache,
  staging,
  model,  ///< weights and activations: counted by themselves, under no limit
};
inline constexpr std::size_t purpose_count = static_cast<std::size_t>(Purpose::model) + 1;

std::string_view to_string(Tier tier) noexcept;
std::string_view to_string(Purpose purpose) noexcept;

}  // namespace terrace
