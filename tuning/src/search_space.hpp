// What the tuner tries.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// Returns the block sizes that a trace can serve.
std::vector<std::size_t> block_sizes(const TraceHead& head);

/// Returns every cache to try, without its capacity; those that know the future last.
/// Errors: invalid_argument: an unknown policy, with the nearest name; nothing left to try.
Result<std::vector<CacheOptions>> cache_choices(std::span<const std::string> policies);

/// Device memory of one block size: what is fixed, and what a slot of all layers takes.
struct MemoryPlan {
  std::size_t fixed_bytes = 0;
  std::size_t slot_bytes = 0;
  std::size_t slots_useful = 0;  ///< more would never be filled, or no config could say so

  /// Returns the slots per layer that fit, none where even the fixed part does not.
  [[nodiscard]] std::size_t slots(std::size_t device_memory) const noexcept;
};

MemoryPlan plan_memory(const TraceHead& head, const TraceEnd& end, std::size_t block_tokens);

}  // namespace terrace::tuning
