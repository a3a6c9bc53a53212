// The decisions of a cache policy. A policy knows keys and sizes: no memory, no clock, no threads.
// The mechanism (terrace/policies/resident_cache.hpp) feeds it whole steps, in this order:
//
//   touch(hits); miss(misses);                     // all that the step wanted, resident or not
//   choose_victim(incoming, evictable)...           // for each unit to admit, and
//   evict(victim)...; track(incoming)               // once enough victims are found
//   expire()...                                     // evictions that free room does not require
//
// In a cache that is used item by item, each step wants one unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "terrace/core/function_ref.hpp"

namespace terrace {

/// A cached unit (a block or a cluster): a dense number below CacheExtent::keys.
using UnitKey = std::uint32_t;

/// No unit.
inline constexpr UnitKey no_unit = ~UnitKey{0};

struct CacheExtent {
  std::size_t keys = 0;   ///< unit keys are below it
  std::size_t slots = 0;  ///< capacity
};

/// Threads  one at a time. Allocates in resize() only
class ReplacementPolicy {
 public:
  ReplacementPolicy() = default;
  ReplacementPolicy(const ReplacementPolicy&) = delete;
  ReplacementPolicy& operator=(const ReplacementPolicy&) = delete;
  virtual ~ReplacementPolicy() = default;

  /// Makes room for keys and says what the cache can hold. Called first, and again when either
  /// changes; keys never get fewer.
  virtual void resize(const CacheExtent& extent) = 0;

  /// Takes a unit of `slots` slots that has just become resident, missed before or not; not
  /// tracked.
  virtual void track(UnitKey key, std::uint32_t slots) = 0;

  /// Begins a step: notes the tracked units that it wanted, all at once.
  virtual void touch(std::span<const UnitKey> hits) = 0;

  /// Notes the units that the step wanted and that are not tracked.
  virtual void miss(std::span<const UnitKey> /*misses*/) {}

  /// Removes a unit, tracked or not, and all memory of it.
  virtual void forget(UnitKey key) = 0;

  /// Returns a missed unit's rank among units of equal worth: the lowest gets room first. Among
  /// equal ranks, the unit that the step named first does.
  [[nodiscard]] virtual std::uint64_t place_in_line(UnitKey /*missed*/) const { return 0; }

  /// Returns the unit to evict for `incoming` (no_unit: because the cache shrinks) among those that
  /// `evictable` allows; nothing if there is no such unit, or if `incoming` is worth less than each
  /// of them. The victim stays tracked: a large unit needs several victims, which are evicted all
  /// together or not at all, and for each call the earlier ones are not evictable. Changes that the
  /// search itself makes (it moves a hand, it promotes units) stay even if no victim is evicted.
  /// Deterministic.
  virtual std::optional<UnitKey> choose_victim(UnitKey incoming,
                                               FunctionRef<bool(UnitKey)> evictable) = 0;

  /// Removes a tracked unit: a victim, or a unit whose copy was lost. A policy that remembers
  /// evicted units remembers it from now on. The default forgets the unit.
  virtual void evict(UnitKey key) { forget(key); }

  /// Removes and returns a unit that the policy gives up though there is room, or nothing. Called
  /// until it returns nothing, at the end of each step.
  virtual std::optional<UnitKey> expire() { return std::nullopt; }

  /// Tracked units.
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;

  /// Memory of the policy's arrays, in bytes.
  [[nodiscard]] virtual std::size_t state_bytes() const noexcept = 0;
};

/// Knows what comes: for policies that only a recorded trace can serve.
class Foresight {
 public:
  Foresight() = default;
  Foresight(const Foresight&) = delete;
  Foresight& operator=(const Foresight&) = delete;
  virtual ~Foresight() = default;

  static constexpr std::uint64_t never = ~std::uint64_t{0};

  /// Returns the number of the next step after the one under way that wants the unit, or never.
  [[nodiscard]] virtual std::uint64_t next_step(UnitKey key) const noexcept = 0;
};

/// Decides whether a missed unit is worth its refill.
class AdmissionPolicy {
 public:
  AdmissionPolicy() = default;
  AdmissionPolicy(const AdmissionPolicy&) = delete;
  AdmissionPolicy& operator=(const AdmissionPolicy&) = delete;
  virtual ~AdmissionPolicy() = default;

  /// Makes room for keys below `key_count`. Called first; nothing else allocates.
  virtual void resize(std::size_t key_count) = 0;

  /// Notes that a step wanted `rows` rows of a unit, and whether it was resident. Called for every
  /// wanted unit of a step before any question is asked.
  virtual void want(UnitKey key, std::uint32_t rows, bool resident) = 0;

  /// Returns the expected worth of having the unit resident, in rows not fetched. The mechanism
  /// admits units in order of their worth, and refuses a unit whose worth is less than the rows
  /// that its promotion moves.
  [[nodiscard]] virtual double worth(UnitKey key) const = 0;

  /// Takes the rows that a refill moves out of what may be spent; returns false, and takes nothing,
  /// when that is less.
  virtual bool pay(std::uint32_t refill_rows) = 0;

  /// Gives back what pay() took for a refill that does not happen.
  virtual void give_back(std::uint32_t refill_rows) = 0;

  /// Ends a step: what was wanted long ago counts for less from now on.
  virtual void end_step() = 0;

  /// Drops all memory of a unit.
  virtual void forget(UnitKey key) = 0;

  /// Memory of the policy's arrays, in bytes.
  [[nodiscard]] virtual std::size_t state_bytes() const noexcept = 0;
};

}  // namespace terrace
