// Clusters of a layer as units of its resident cache: which rows belong to each, and where the rows
// of cached ones lie in device memory.
//
// A unit is a cluster of one KV head: its key is cluster * kv_heads + head. Its rows lie in slots
// of a few rows each, cut from the blocks of device memory that all caches share; so clusters of
// any size fit without gaps that grow, and what a step looks up is one number per row.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/device_words.hpp"
#include "rows/pointer_table.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/replacement.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

/// The rows of each cluster, as a layer's index on the host labels them.
class ClusterMembers {
 public:
  /// Reads the labels of the tokens of `index`.
  void read(const RetrievalPolicy& policy, const KvShape& shape, const IndexLayout& layout,
            const IndexView& index);

  /// Units of one head's rows: element i is of position first_position() + i.
  [[nodiscard]] std::span<const UnitKey> units_of(std::size_t head) const noexcept {
    const std::size_t tokens = units_.size() / heads_;
    return std::span(units_).subspan(head * tokens, tokens);
  }
  [[nodiscard]] std::size_t first_position() const noexcept { return first_position_; }

  /// Positions of a unit, ascending.
  [[nodiscard]] std::span<const std::uint32_t> of(UnitKey unit) const noexcept {
    return std::span(positions_).subspan(begins_[unit], begins_[unit + 1] - begins_[unit]);
  }

  /// Keys are below it.
  [[nodiscard]] std::size_t units() const noexcept {
    return begins_.empty() ? 0 : begins_.size() - 1;
  }

 private:
  std::size_t heads_ = 1;
  std::size_t first_position_ = 0;
  std::vector<UnitKey> units_;         ///< [heads, tokens]
  std::vector<std::uint32_t> begins_;  ///< [units + 1] into positions_
  std::vector<std::uint32_t> positions_;
};

/// A row of a unit, and where to copy it from: see CachedRowChange.
struct UnitRow {
  std::uint32_t position = 0;
  std::uint32_t staged = 0;
};

struct ClusterRoom {
  std::size_t units = 0;      ///< keys are below it
  std::size_t slots = 0;      ///< of the cache
  std::size_t positions = 0;  ///< of rows are below it
  std::size_t changes = 0;    ///< rows that come and go in a step, as a rule
  Duration deadline{};
};

/// Slots of one layer's cached clusters. Changes are carried out by flush(), in one op.
class ClusterSlots {
 public:
  using TakeBlock = FunctionRef<Result<std::byte*>()>;

  ClusterSlots(const KvShape& shape, std::size_t block_tokens);

  /// Makes room; what is there stays. Waits for `queue` if the table of rows has to grow.
  /// Errors: out_of_memory, those of queues.
  Status reserve(Backend& backend, Queue& queue, const ClusterRoom& room);

  /// Returns slots enough for all rows of `room`, whatever units they belong to. Grows seldom.
  [[nodiscard]] std::size_t enough_for(const ClusterRoom& room) const noexcept {
    return std::bit_ceil(room.units + room.positions * shape_.kv_heads / slot_rows_);
  }

  /// Returns how many blocks more it takes to fill so many slots.
  [[nodiscard]] std::size_t missing_blocks(std::size_t slots) const noexcept;

  /// Whether reserve() would leave the tables where they are.
  [[nodiscard]] bool has_room(const ClusterRoom& room) const noexcept {
    return room.slots <= taken_.size() && room.positions <= positions_;
  }

  [[nodiscard]] bool holds(UnitKey unit) const noexcept {
    return unit < first_slots_.size() && first_slots_[unit] != none;
  }

  /// Returns how many slots so many rows take.
  [[nodiscard]] std::uint32_t slots_for(std::size_t rows) const noexcept {
    return static_cast<std::uint32_t>(divide_up(rows, slot_rows_));
  }

  /// Gives a unit slots for its rows. Errors: out_of_memory, those of `take_block` where the slots
  /// of blocks that are there do not suffice; nothing is placed then.
  Status place(UnitKey unit, std::span<const UnitRow> rows, TakeBlock take_block);
  void remove(UnitKey unit, std::span<const std::uint32_t> members);

  /// Removes all units.
  void clear() noexcept;

  /// Blocks that no unit uses any more; they are the caller's again.
  [[nodiscard]] std::vector<std::byte*> take_unused_blocks();

  [[nodiscard]] bool has_tables() const noexcept { return static_cast<bool>(numbers_); }

  /// Gives device memory up. Nothing may be placed, no block held.
  void reset() noexcept;

  [[nodiscard]] bool changed() const noexcept {
    return !changes_.empty() || clears_ || blocks_.changed();
  }

  /// Changes that the next flush() sends.
  [[nodiscard]] std::span<const CachedRowChange> changes() const noexcept { return changes_; }

  /// Whether changes need rows that are on the host alone.
  [[nodiscard]] bool needs_link() const noexcept { return needs_link_; }

  /// Enqueues all changes since the last flush, whose op must have ended. Errors: out_of_memory,
  /// with nothing enqueued; those of queues.
  Result<Ticket> flush(Backend& backend, Queue& queue, BlockTable source, const std::byte* staging);

  [[nodiscard]] CachedRows rows() const noexcept {
    return {.numbers = numbers_.data(),
            .blocks = blocks_.data(),
            .block_rows = slots_per_block_ * slot_rows_};
  }

 private:
  static constexpr std::uint32_t none = 0xffffffffU;

  /// Takes the lowest free slot; if memory for its block is short, a slot in an existing block.
  Result<std::uint32_t> take_slot(TakeBlock take_block);
  [[nodiscard]] std::uint32_t free_slot_in_a_block() const noexcept;  ///< none: all are taken
  /// Takes a unit's slots and chains them. On an error it has none.
  Status take_slots(UnitKey unit, std::size_t count, TakeBlock take_block);
  Status grow_numbers(Backend& backend, Queue& queue, const ClusterRoom& room);
  Status reserve_sent(Backend& backend, std::size_t changes);
  void give_slots(UnitKey unit) noexcept;
  /// Appends so many changes, to be filled in.
  [[nodiscard]] std::span<CachedRowChange> add_changes(std::size_t count);

  [[nodiscard]] std::uint32_t head_of(UnitKey unit) const noexcept {
    return unit % static_cast<std::uint32_t>(shape_.kv_heads);
  }

  KvShape shape_;
  std::uint32_t slot_rows_;
  std::uint32_t slots_per_block_;
  PointerTable blocks_{Tier::device};
  std::vector<std::uint32_t> used_in_block_;
  std::vector<bool> taken_;                 ///< per slot
  std::vector<std::uint32_t> next_slot_;    ///< per slot: the next of its unit
  std::vector<std::uint32_t> first_slots_;  ///< per unit; none = it is not there
  std::uint32_t search_from_ = 0;           ///< slots below it are taken
  DeviceWords numbers_;                     ///< CachedRows::numbers
  std::size_t positions_ = 0;               ///< that numbers_ has room for
  Buffer sent_;                             ///< host: the changes under way
  std::vector<CachedRowChange> changes_;
  bool clears_ = false;
  bool needs_link_ = false;
};

}  // namespace terrace
