// Records of one kind: those in use, those that were, and those that never were.
#pragma once

#include <span>

#include "block_layout.hpp"

namespace terrace::tiers {

/// `next` links the free records.
template <typename Record, RecordNumber Record::* next>
class RecordPool {
 public:
  /// `records`: with the one of number 0.
  RecordPool(std::span<Record> records, PoolState& state) noexcept
      : records_(records), state_(&state) {}

  [[nodiscard]] Record& operator[](RecordNumber number) const noexcept { return records_[number]; }
  [[nodiscard]] std::size_t size_max() const noexcept { return records_.size() - 1; }
  [[nodiscard]] const PoolState& state() const noexcept { return *state_; }
  [[nodiscard]] bool is_full() const noexcept { return state_->used == size_max(); }

  /// Returns a record, with whatever it held before; no_record where all are in use.
  [[nodiscard]] RecordNumber allocate() noexcept {
    if (is_full()) return no_record;
    ++state_->used;
    const RecordNumber free = state_->first_free;
    if (free == no_record) return state_->fresh++;
    state_->first_free = records_[free].*next;
    return free;
  }

  void release(RecordNumber number) noexcept {
    records_[number].*next = state_->first_free;
    state_->first_free = number;
    --state_->used;
  }

 private:
  std::span<Record> records_;
  PoolState* state_;
};

}  // namespace terrace::tiers
