// How a look-up of a prefix ended: in exactly one of eleven ways.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/tier.hpp"

namespace terrace::tiers {

/// Why a chunk is not there.
enum class MissReason : std::uint8_t {
  never_stored,
  evicted,          ///< it was there, and made room for others
  corrupt,          ///< it was there, and its bytes were not those that were written
  late,             ///< it was on its way, and not there in time
  other_namespace,  ///< the directory has chunks, but none of this namespace was ever stored
  no_room,          ///< it was to be stored, and nothing could make room for it
  slower,           ///< it is there, and takes longer to read than to compute
};
inline constexpr std::size_t miss_reason_count = 7;

/// A hit is of the slowest tier that one of its chunks had to come from.
enum class LookUpOutcome : std::uint8_t {
  hit_host,
  hit_nvme,
  hit_remote,
  partial,  ///< a run from the front is there, but not all that was looked for
  miss_never_stored,
  miss_evicted,
  miss_corrupt,
  miss_late,
  miss_other_namespace,
  miss_no_room,
  miss_slower,
};
inline constexpr std::size_t look_up_outcome_count = 11;

/// Returns why a chunk is not there that could not be read.
[[nodiscard]] MissReason reason_of(const Error& error) noexcept;

/// `tier`: host or below.
[[nodiscard]] LookUpOutcome hit_of(Tier tier) noexcept;
[[nodiscard]] LookUpOutcome miss_of(MissReason reason) noexcept;

/// Returns the enumerator's name, for messages, JSON and labels of metrics.
[[nodiscard]] std::string_view to_string(MissReason reason) noexcept;
[[nodiscard]] std::string_view to_string(LookUpOutcome outcome) noexcept;

/// Look-ups, and how they ended: the sum of `ended` is look_ups.
struct LookUpCounters {
  std::uint64_t look_ups = 0;
  std::array<std::uint64_t, look_up_outcome_count> ended = {};

  [[nodiscard]] std::uint64_t operator[](LookUpOutcome outcome) const noexcept {
    return ended[static_cast<std::size_t>(outcome)];
  }
  bool operator==(const LookUpCounters&) const = default;
};

}  // namespace terrace::tiers
