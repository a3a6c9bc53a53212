// The caches that the tuner tries.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/runtime/step_room.hpp"
#include "terrace/tuning/trace_extent.hpp"

namespace terrace::tuning {

/// Returns what may be cached as one: all that a trace can serve, of blocks some sizes.
std::vector<CacheUnit> cache_units(const TraceHead& head);

/// Returns every cache to try, without its capacity; those that know the future last.
/// Errors: invalid_argument: an unknown policy, with the nearest name; nothing left to try.
Result<std::vector<CacheOptions>> cache_choices(std::span<const std::string> policies);

/// Whether a cache of such units can be that one.
bool can_cache(const CacheOptions& cache, const CacheUnit& unit);

/// Returns what differs from a cache by a step of one of its settings, the next finer one.
std::vector<CacheOptions> settings_beside(const CacheOptions& cache);

/// Device memory of caches of one kind of unit: what is fixed, and what a slot of all layers takes.
struct MemoryPlan {
  std::size_t fixed_bytes = 0;
  std::size_t least_bytes = 0;  ///< that a run needs to have its index there, no less than those
  std::size_t slot_bytes = 0;
  std::size_t slots_useful = 0;  ///< more would never be filled, or no config could say so
  StepRoomQuery step;  ///< of the largest prompt, but for the limit; empty = no run was recorded

  /// Returns the slots per layer that fit, 0 if even a run without a cache does not fit.
  [[nodiscard]] std::size_t slots(std::size_t device_memory) const noexcept;
  /// Returns the least device memory in which a run with a cache of one slot fits.
  [[nodiscard]] std::size_t least_memory() const noexcept;
  /// Returns whether a run without a cache fits.
  [[nodiscard]] bool fits(std::size_t device_memory) const noexcept;

  /// Returns what steps of the largest prompt share, of so much device memory.
  [[nodiscard]] std::size_t step_bytes(std::size_t device_memory) const noexcept;
};

/// Plans for as many sharers as the trace had at a time.
MemoryPlan plan_memory(const TraceHead& head, const TraceEnd& end, const TraceExtent& extent,
                       const CacheUnit& unit);

/// Returns the recorded run's device memory beside blocks of rows, but for what it had, or has to
/// have, because of what it cached; 0 where no run was recorded.
std::size_t measured_bytes(const TraceHead& head, const TraceEnd& end,
                           CacheGranularity granularity);

}  // namespace terrace::tuning
