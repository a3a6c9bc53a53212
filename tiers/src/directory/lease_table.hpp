// Leases, and which of them expires first: a binary heap.
#pragma once

#include <optional>

#include "record_pool.hpp"
#include "terrace/core/clock.hpp"

namespace terrace::tiers {

class LeaseTable {
 public:
  using Pool = RecordPool<LeaseRecord, &LeaseRecord::heap_place>;

  LeaseTable(Pool pool, std::span<RecordNumber> heap) noexcept : pool_(pool), heap_(heap) {}

  [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
  [[nodiscard]] bool is_full() const noexcept { return pool_.is_full(); }

  /// There must be room.
  [[nodiscard]] LeaseHandle begin(RecordNumber copy, TimePoint until) noexcept;

  /// Whether the lease neither ended nor expired.
  [[nodiscard]] bool holds(LeaseHandle lease, TimePoint now) const noexcept;

  /// Ends a lease that has not ended. Returns the copy.
  RecordNumber end(LeaseHandle lease) noexcept;

  /// Returns the lease that expires first, if it has expired.
  [[nodiscard]] std::optional<LeaseHandle> expired(TimePoint now) const noexcept;

  /// Whether the heap has all leases that are in use, in their order, each of a copy below
  /// `copies`.
  [[nodiscard]] bool is_whole(RecordNumber copies) const noexcept;

 private:
  [[nodiscard]] std::size_t heap_size() const noexcept { return pool_.state().used; }
  [[nodiscard]] std::int64_t until_at(std::size_t place) const noexcept {
    return pool_[heap_[place]].until;
  }
  void put(std::size_t place, RecordNumber lease) noexcept;
  void rise(std::size_t place) noexcept;
  void sink(std::size_t place, std::size_t size) noexcept;

  Pool pool_;
  std::span<RecordNumber> heap_;
};

}  // namespace terrace::tiers
