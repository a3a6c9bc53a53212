#include "cluster_units.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "memory/reserve_buffer.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/runtime/cache_options.hpp"

namespace terrace {

void ClusterMembers::read(const RetrievalPolicy& policy, const KvShape& shape,
                          const IndexLayout& layout, const IndexView& index) {
  heads_ = shape.kv_heads;
  first_position_ = index.first_token;
  const std::size_t tokens = index.token_count;
  const std::size_t chunks = divide_up(tokens, layout.chunk_tokens);
  units_.resize(heads_ * tokens);
  begins_.assign(chunks * layout.chunk_clusters * heads_ + 1, 0);
  for (std::size_t head = 0; head < heads_; ++head) {
    UnitKey* const units = units_.data() + head * tokens;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t* const labels = policy.labels(shape, index.chunks[chunk], head);
      const std::size_t begin = chunk * layout.chunk_tokens;
      const std::size_t end = std::min(tokens, begin + layout.chunk_tokens);
      for (std::size_t token = begin; token < end; ++token) {
        units[token] = static_cast<UnitKey>(labels[token - begin] * heads_ + head);
        ++begins_[units[token] + 1];
      }
    }
  }
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  positions_.resize(units_.size());
  std::vector<std::uint32_t> ends(begins_);
  for (std::size_t head = 0; head < heads_; ++head) {
    auto position = static_cast<std::uint32_t>(first_position_);
    for (const UnitKey unit : units_of(head)) positions_[ends[unit]++] = position++;
  }
}

ClusterSlots::ClusterSlots(const KvShape& shape, std::size_t block_tokens)
    : shape_(shape),
      slot_rows_(static_cast<std::uint32_t>(cluster_slot_rows(shape, block_tokens))),
      slots_per_block_(static_cast<std::uint32_t>(block_tokens * shape.kv_heads / slot_rows_)) {}

Status ClusterSlots::reserve(Backend& backend, Queue& queue, const ClusterRoom& room) {
  if (room.units > first_slots_.size()) first_slots_.resize(room.units, none);
  // A cache without slots has no blocks to look rows up in, so it needs no table. A table left from
  // a time with slots is read for all positions, so it has to grow.
  if (room.slots == 0 && !numbers_) return {};
  if (room.slots > taken_.size()) {
    const std::size_t blocks = divide_up(room.slots, slots_per_block_);
    TERRACE_TRY(blocks_.reserve(backend, blocks));
    used_in_block_.resize(blocks, 0);
    taken_.resize(blocks * slots_per_block_, false);
    next_slot_.resize(taken_.size(), none);
    TERRACE_TRY(reserve_sent(backend, room.changes));
  }
  return room.positions > positions_ ? grow_numbers(backend, queue, room) : Status{};
}

Status ClusterSlots::grow_numbers(Backend& backend, Queue& queue, const ClusterRoom& room) {
  const std::size_t positions = with_room(room.positions);
  TERRACE_TRY(numbers_.grow(backend, queue, positions * shape_.kv_heads, room.deadline));
  positions_ = positions;
  return {};
}

std::size_t ClusterSlots::missing_blocks(std::size_t slots) const noexcept {
  const std::size_t blocks = divide_up(std::min(slots, taken_.size()), slots_per_block_);
  std::size_t missing = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    if (blocks_[block] == nullptr) ++missing;
  }
  return missing;
}

Result<std::uint32_t> ClusterSlots::take_slot(TakeBlock take_block) {
  while (search_from_ < taken_.size() && taken_[search_from_]) ++search_from_;
  TERRACE_ASSERT(search_from_ < taken_.size());
  std::uint32_t slot = search_from_;
  if (blocks_[slot / slots_per_block_] == nullptr) {
    if (const Result<std::byte*> memory = take_block()) {
      blocks_.set(slot / slots_per_block_, *memory);
    } else {
      slot = free_slot_in_a_block();
      if (slot == none) return tl::unexpected(memory.error());
    }
  }
  ++used_in_block_[slot / slots_per_block_];
  taken_[slot] = true;
  return slot;
}

std::uint32_t ClusterSlots::free_slot_in_a_block() const noexcept {
  for (std::uint32_t block = 0; block < used_in_block_.size(); ++block) {
    if (blocks_[block] == nullptr || used_in_block_[block] == slots_per_block_) continue;
    std::uint32_t slot = block * slots_per_block_;
    while (taken_[slot]) ++slot;
    return slot;
  }
  return none;
}

Status ClusterSlots::take_slots(UnitKey unit, std::size_t count, TakeBlock take_block) {
  std::uint32_t* next = &first_slots_[unit];
  for (std::size_t i = 0; i < count; ++i) {
    const auto slot = take_slot(take_block);
    if (!slot) {
      give_slots(unit);
      return tl::unexpected(slot.error());
    }
    *next = *slot;
    next = &next_slot_[*slot];
    *next = none;
  }
  return {};
}

void ClusterSlots::give_slots(UnitKey unit) noexcept {
  for (std::uint32_t slot = first_slots_[unit]; slot != none; slot = next_slot_[slot]) {
    taken_[slot] = false;
    --used_in_block_[slot / slots_per_block_];
    search_from_ = std::min(search_from_, slot);
  }
  first_slots_[unit] = none;
}

std::span<CachedRowChange> ClusterSlots::add_changes(std::size_t count) {
  changes_.resize(changes_.size() + count);
  return std::span(changes_).last(count);
}

Status ClusterSlots::place(UnitKey unit, std::span<const UnitRow> rows, TakeBlock take_block) {
  if (!numbers_) return fail(Errc::out_of_memory, "no table to find cached rows by");
  TERRACE_TRY(take_slots(unit, slots_for(rows.size()), take_block));
  const std::span<CachedRowChange> changes = add_changes(rows.size());
  const std::uint32_t head = head_of(unit);
  std::uint32_t slot = first_slots_[unit];
  bool all_staged = true;
  for (std::size_t begin = 0; begin < rows.size(); begin += slot_rows_) {
    const std::size_t end = std::min(rows.size(), begin + slot_rows_);
    std::uint32_t number = slot * slot_rows_;
    for (std::size_t i = begin; i < end; ++i) {
      const auto [position, staged] = rows[i];
      changes[i] = {.position = position, .head = head, .number = ++number, .staged = staged};
      all_staged = all_staged && staged != 0;
    }
    slot = next_slot_[slot];
  }
  needs_link_ = needs_link_ || !all_staged;
  return {};
}

void ClusterSlots::remove(UnitKey unit, std::span<const std::uint32_t> members) {
  give_slots(unit);
  const std::span<CachedRowChange> changes = add_changes(members.size());
  const std::uint32_t head = head_of(unit);
  for (std::size_t i = 0; i < members.size(); ++i) {
    changes[i] = {.position = members[i], .head = head};
  }
}

void ClusterSlots::clear() noexcept {
  std::ranges::fill(first_slots_, none);
  std::ranges::fill(used_in_block_, 0U);
  std::fill(taken_.begin(), taken_.end(), false);
  search_from_ = 0;
  changes_.clear();
  needs_link_ = false;
  blocks_.touch_all();
  clears_ = static_cast<bool>(numbers_);
}

std::vector<std::byte*> ClusterSlots::take_unused_blocks() {
  std::vector<std::byte*> unused;
  for (std::size_t block = 0; block < used_in_block_.size(); ++block) {
    if (used_in_block_[block] != 0 || blocks_[block] == nullptr) continue;
    unused.push_back(blocks_[block]);
    blocks_.set(block, nullptr);
  }
  return unused;
}

void ClusterSlots::reset() noexcept {
  clear();
  blocks_.reset();
  used_in_block_.clear();
  taken_.clear();
  next_slot_.clear();
  numbers_.reset();
  sent_.reset();
  positions_ = 0;
  clears_ = false;
}

Status ClusterSlots::reserve_sent(Backend& backend, std::size_t changes) {
  const std::size_t bytes = changes * sizeof(CachedRowChange);
  if (sent_.bytes() >= bytes) return {};
  TERRACE_ASSIGN(sent_, backend.allocate({.bytes = bytes + bytes / 2, .tier = Tier::host}));
  return {};
}

Result<Ticket> ClusterSlots::flush(Backend& backend, Queue& queue, BlockTable source,
                                   const std::byte* staging) {
  numbers_.release_zeros();
  TERRACE_TRY(reserve_sent(backend, changes_.size()));
  Ticket done;
  if (clears_) {
    TERRACE_TRY(numbers_.prepare_zeros(backend));
    TERRACE_ASSIGN(done, numbers_.clear(queue));
    clears_ = false;
  }
  if (blocks_.changed()) {
    TERRACE_ASSIGN(done, blocks_.flush(queue));
  }
  if (changes_.empty()) return done;
  std::memcpy(sent_.data(), changes_.data(), changes_.size() * sizeof(CachedRowChange));
  const CacheRows op{.shape = shape_,
                     .changes = sent_.as<CachedRowChange>(),
                     .count = changes_.size(),
                     .source = source,
                     .staging = staging,
                     .target = rows()};
  TERRACE_ASSIGN(done, backend.ops().cache_rows(queue, Phase::refill, op));
  changes_.clear();
  needs_link_ = false;
  return done;
}

}  // namespace terrace
