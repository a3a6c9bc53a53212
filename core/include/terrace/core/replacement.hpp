// What a cache policy decides. It knows keys and sizes: no memory, no clock, no threads. The
// mechanism (terrace/offload/resident_cache.hpp) feeds it one step at a time: all hits are touched
// before anything is evicted or tracked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "terrace/core/function_ref.hpp"

namespace terrace {

/// A cached unit (a block or a cluster): a dense number below the capacity the policy was made for.
using UnitKey = std::uint32_t;

class ReplacementPolicy {
 public:
  ReplacementPolicy() = default;
  ReplacementPolicy(const ReplacementPolicy&) = delete;
  ReplacementPolicy& operator=(const ReplacementPolicy&) = delete;
  virtual ~ReplacementPolicy() = default;

  /// Takes a unit that has just become resident; `slots` is its size. It must not be tracked yet.
  virtual void track(UnitKey key, std::uint32_t slots) = 0;

  /// Notes that a tracked unit was wanted in this step.
  virtual void touch(UnitKey key) = 0;

  /// Removes a tracked unit and all memory of it.
  virtual void forget(UnitKey key) = 0;

  /// Removes and returns the unit to give up next among those `evictable` allows, or nothing when
  /// there is none. Deterministic.
  virtual std::optional<UnitKey> evict(FunctionRef<bool(UnitKey)> evictable) = 0;

  /// Tracked units.
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;
};

/// Decides whether a missed unit is worth its refill.
class AdmissionPolicy {
 public:
  AdmissionPolicy() = default;
  AdmissionPolicy(const AdmissionPolicy&) = delete;
  AdmissionPolicy& operator=(const AdmissionPolicy&) = delete;
  virtual ~AdmissionPolicy() = default;

  /// Notes that a step wanted `rows` rows of a unit, resident or not. Called for every wanted unit
  /// of a step before any question is asked.
  virtual void want(UnitKey key, std::uint32_t rows) = 0;

  /// Returns the expected worth of having the unit resident, in rows not fetched; the mechanism
  /// admits the worthiest first, and refuses a unit whose worth is below `refill_rows`.
  [[nodiscard]] virtual double worth(UnitKey key) const = 0;

  /// Ends a step: what was wanted long ago counts for less from now on.
  virtual void end_step() = 0;

  /// Drops all memory of a unit.
  virtual void forget(UnitKey key) = 0;
};

}  // namespace terrace
