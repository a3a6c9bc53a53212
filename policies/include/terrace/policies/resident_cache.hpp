// The resident cache's decisions: which units (blocks or clusters) have slots in device memory.
// The cache decides and counts; its caller moves the bytes.
//
//   cache.plan_step(wanted, plan);       // what the step hits, and what changes because of it
//   ... fetch the misses, attend ...
//   free the slots of plan.evicted, copy plan.admitted into theirs
//
// One step: all units are tested; hits are touched in the order given; then misses are admitted,
// the worthiest first. A unit is admitted if its worth is at least its cost: the rows that its
// promotion moves and the worth of all units evicted for it. Only units that the step does not want
// can be evicted. Units whose rows are all fetched anyway are promoted at no cost: such a unit
// replaces other units of this kind by the replacement policy alone, at any worth. Nothing is
// evicted if the new unit would still not fit. An admitted unit serves from the next step on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/function_ref.hpp"
#include "terrace/core/replacement.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

/// A unit that a step reads rows of. A step names a unit once.
struct WantedUnit {
  UnitKey unit = 0;
  std::uint32_t rows_wanted = 0;
  // For a unit that is not resident:
  std::uint32_t slots = 1;        ///< its size
  std::uint32_t refill_rows = 0;  ///< rows that making it resident would copy
};

/// The hits that a step found, and the changes that its caller is to make after it. Reused, so that
/// steps allocate nothing.
struct CachePlan {
  std::vector<std::uint8_t> hit;        ///< [wanted]: 1 = resident before this step
  std::vector<UnitKey> evicted;         ///< in order; their slots are free for what is admitted
  std::vector<std::uint32_t> admitted;  ///< indices into wanted, in order
};

struct UnitCounters {
  std::uint64_t hit_units = 0;
  std::uint64_t hit_rows = 0;
  std::uint64_t missed_units = 0;
  std::uint64_t missed_rows = 0;
  std::uint64_t admitted_units = 0;
  std::uint64_t evicted_units = 0;
  std::uint64_t adopted_units = 0;
  std::uint64_t refused_units = 0;  ///< not worth their refill, or it cannot be paid for
  std::uint64_t no_room_units = 0;  ///< worth it, but the slots go to worthier units
  std::uint64_t refill_rows = 0;
};

/// Threads  one thread at a time
class ResidentCache {
 public:
  /// `key_count`: unit keys are below it. Null admission admits always. Errors: invalid_argument
  /// for no keys or no replacement.
  [[nodiscard]] static Result<ResidentCache> create(std::size_t capacity_slots,
                                                    std::size_t key_count,
                                                    std::unique_ptr<ReplacementPolicy> replacement,
                                                    std::unique_ptr<AdmissionPolicy> admission);

  /// Plans one step. Deterministic. Cost: O(wanted log wanted) and the policies' own.
  void plan_step(std::span<const WantedUnit> wanted, CachePlan& plan);

  /// Evicts units for a unit that the step's plan has admitted, as if the cache were full; for
  /// callers whose memory is smaller than the capacity. Appends the evicted units to `evicted`. If
  /// too few units may be evicted, none is, the admitted unit is dropped, and false is returned.
  bool displace_for(const WantedUnit& wanted, std::vector<UnitKey>& evicted);

  /// Makes a unit resident whose rows are in device memory already, between two steps: nothing has
  /// to be copied. Appends the units evicted for it to `evicted`; returns whether it was admitted.
  bool adopt(UnitKey unit, std::uint32_t slots, std::vector<UnitKey>& evicted);

  [[nodiscard]] bool resident(UnitKey unit) const noexcept { return units_[unit].slots != 0; }

  /// Forgets a unit that no longer exists, and its history. Its slots are free at once.
  void forget(UnitKey unit);
  void forget_all();

  /// Drops a unit's residency only: what it holds is a copy, so this changes no output. A policy
  /// that remembers what went has it in its memory.
  void drop(UnitKey unit);

  /// Forgets all units from `first` on.
  void drop_from(UnitKey first);

  /// Makes room for unit keys below `key_count`; what is known stays.
  void reserve_keys(std::size_t key_count);

  /// Changes the capacity, between two steps; appends to `evicted` what must go now.
  void resize(std::size_t capacity_slots, std::vector<UnitKey>& evicted);

  [[nodiscard]] std::size_t capacity_slots() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used_slots() const noexcept { return used_; }
  [[nodiscard]] std::size_t resident_units() const noexcept { return replacement_->size(); }
  [[nodiscard]] const UnitCounters& counters() const noexcept { return counters_; }

  /// Memory of all that is kept about units, with the policies', in bytes; not of the units.
  [[nodiscard]] std::size_t state_bytes() const noexcept;

 private:
  struct Unit {
    std::uint32_t slots = 0;        ///< 0 = not resident
    bool chosen = false;            ///< to go for the unit that room is being made for
    bool free = false;              ///< nothing was refilled for it
    std::uint64_t wanted_step = 0;  ///< the last step that wanted it
  };
  struct Candidate {
    double worth;
    std::uint64_t place;  // in line
    std::uint32_t index;
  };

  /// Whether a unit may go, next to others of that worth in all.
  using Evictable = FunctionRef<bool(UnitKey, double given_up)>;

  ResidentCache(std::size_t capacity_slots, std::size_t key_count,
                std::unique_ptr<ReplacementPolicy> replacement,
                std::unique_ptr<AdmissionPolicy> admission);
  void test_and_touch(std::span<const WantedUnit> wanted, CachePlan& plan);
  void rank_misses(std::span<const WantedUnit> wanted, const CachePlan& plan);
  void admit(std::span<const WantedUnit> wanted, CachePlan& plan);
  bool admit_one(const WantedUnit& wanted, double worth, std::vector<UnitKey>& evicted);
  /// Has others give up so many slots for a unit.
  bool replace_for(const WantedUnit& wanted, std::size_t slots, double spare,
                   std::vector<UnitKey>& evicted);
  bool make_room(UnitKey incoming, std::size_t slots, Evictable evictable,
                 std::vector<UnitKey>& evicted);
  /// How many slots are too few for so many more.
  [[nodiscard]] std::size_t missing_slots(std::size_t more) const noexcept {
    return used_ + more > capacity_ ? used_ + more - capacity_ : 0;
  }
  void expire(std::vector<UnitKey>& evicted);
  /// Whatever was found not to be worth enough may be from now on.
  void ask_anew() noexcept;
  [[nodiscard]] double worth(UnitKey unit) const;
  void evict(UnitKey unit);
  void clear_slots(UnitKey unit) noexcept;

  std::size_t capacity_;
  std::size_t used_ = 0;
  std::size_t wanted_slots_ = 0;  ///< of used_, those that the step under way wants
  /// In the step under way nothing is worth as little as that; [1]: of what may go for a free unit.
  std::array<double, 2> useless_spare_ = {};
  std::uint64_t step_ = 0;
  std::unique_ptr<ReplacementPolicy> replacement_;
  std::unique_ptr<AdmissionPolicy> admission_;  ///< null = always
  std::vector<Unit> units_;
  std::vector<Candidate> candidates_;
  std::vector<UnitKey> hits_;
  std::vector<UnitKey> misses_;
  UnitCounters counters_;
};

}  // namespace terrace::policies
