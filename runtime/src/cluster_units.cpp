#include "cluster_units.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

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
  for (std::size_t i = 0; i < units_.size(); ++i) {
    positions_[ends[units_[i]]++] = static_cast<std::uint32_t>(first_position_ + i % tokens);
  }
}

ClusterSlots::ClusterSlots(const KvShape& shape, std::size_t block_tokens)
    : shape_(shape),
      slot_rows_(cluster_slot_rows(shape, block_tokens)),
      slots_per_block_(block_tokens * shape.kv_heads / slot_rows_) {}

Status ClusterSlots::reserve(Backend& backend, Queue& queue, const ClusterRoom& room) {
  if (room.units > units_.size()) units_.resize(room.units);
  if (room.slots > taken_.size()) {
    const std::size_t blocks = divide_up(room.slots, slots_per_block_);
    TERRACE_TRY(blocks_.reserve(backend, blocks));
    used_in_block_.resize(blocks, 0);
    taken_.resize(blocks * slots_per_block_, false);
    next_slot_.resize(taken_.size(), none);
  }
  return room.positions > positions_ ? grow_numbers(backend, queue, room) : Status{};
}

Status ClusterSlots::grow_numbers(Backend& backend, Queue& queue, const ClusterRoom& room) {
  // By a quarter, so that decoding seldom comes here.
  const std::size_t positions = room.positions + room.positions / 4 + 256;
  const std::size_t bytes = positions * shape_.kv_heads * sizeof(std::uint32_t);
  AllocationRequest request{.bytes = bytes, .purpose = Purpose::index};
  TERRACE_ASSIGN(Buffer numbers, backend.allocate(request));
  request.tier = Tier::host;
  TERRACE_ASSIGN(Buffer zeros, backend.allocate(request));
  std::memset(zeros.data(), 0, bytes);
  const auto grow = [&]() -> Status {
    const CopyExtent zero{numbers.data(), zeros.data(), bytes};
    TERRACE_ASSIGN(Ticket grown, queue.copy(Phase::update, {&zero, 1}));
    if (numbers_) {
      const CopyExtent known{numbers.data(), numbers_.data(),
                             positions_ * shape_.kv_heads * sizeof(std::uint32_t)};
      TERRACE_ASSIGN(grown, queue.copy(Phase::update, {&known, 1}));
    }
    return wait(grown, room.deadline);
  };
  if (const Status grown = grow(); !grown) {
    abandoned_.push_back(std::move(numbers));
    abandoned_.push_back(std::move(zeros));
    return grown;
  }
  numbers_ = std::move(numbers);
  positions_ = positions;
  return {};
}

Result<std::uint32_t> ClusterSlots::take_slot(TakeBlock take_block) {
  while (search_from_ < taken_.size() && taken_[search_from_]) ++search_from_;
  TERRACE_ASSERT(search_from_ < taken_.size());
  const std::size_t block = search_from_ / slots_per_block_;
  if (blocks_[block] == nullptr) {
    TERRACE_ASSIGN(std::byte* const memory, take_block());
    blocks_.set(block, memory);
  }
  ++used_in_block_[block];
  taken_[search_from_] = true;
  return static_cast<std::uint32_t>(search_from_);
}

void ClusterSlots::give_slots(Unit& unit) noexcept {
  for (std::uint32_t slot = unit.first_slot; slot != none; slot = next_slot_[slot]) {
    taken_[slot] = false;
    --used_in_block_[slot / slots_per_block_];
    search_from_ = std::min<std::size_t>(search_from_, slot);
  }
  unit = {};
}

Status ClusterSlots::place(UnitKey key, std::span<const std::uint32_t> members, std::size_t head,
                           FindStaged find_staged, TakeBlock take_block) {
  if (!numbers_) return fail(Errc::out_of_memory, "no table to find cached rows by");
  Unit& unit = units_[key];
  const std::size_t changes_before = changes_.size();
  std::uint32_t last = none;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i % slot_rows_ == 0) {
      const auto slot = take_slot(take_block);
      if (!slot) {
        give_slots(unit);
        changes_.resize(changes_before);
        return tl::unexpected(slot.error());
      }
      (last == none ? unit.first_slot : next_slot_[last]) = *slot;
      last = *slot;
      next_slot_[last] = none;
    }
    const std::size_t row = last * slot_rows_ + i % slot_rows_;
    const std::uint32_t staged = find_staged(members[i]);
    changes_.push_back({.position = members[i],
                        .head = static_cast<std::uint32_t>(head),
                        .number = static_cast<std::uint32_t>(row + 1),
                        .staged = staged});
    needs_link_ = needs_link_ || staged == 0;
  }
  unit.rows = static_cast<std::uint32_t>(members.size());
  return {};
}

void ClusterSlots::remove(UnitKey key, std::span<const std::uint32_t> members, std::size_t head) {
  give_slots(units_[key]);
  for (const std::uint32_t position : members) {
    changes_.push_back({.position = position, .head = static_cast<std::uint32_t>(head)});
  }
}

void ClusterSlots::clear() noexcept {
  std::ranges::fill(units_, Unit{});
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
  zeros_.reset();
  sent_.reset();
  positions_ = 0;
  clears_ = false;
}

Result<Ticket> ClusterSlots::flush(Backend& backend, Queue& queue, BlockTable source,
                                   const std::byte* staging) {
  TERRACE_ASSIGN(Ticket done, blocks_.flush(queue));
  zeros_.reset();
  if (clears_) {
    TERRACE_ASSIGN(zeros_, backend.allocate({.bytes = numbers_.bytes(), .tier = Tier::host}));
    std::memset(zeros_.data(), 0, numbers_.bytes());
    const CopyExtent zero{numbers_.data(), zeros_.data(), numbers_.bytes()};
    TERRACE_ASSIGN(done, queue.copy(Phase::update, {&zero, 1}));
    clears_ = false;
  }
  if (changes_.empty()) return done;
  const std::size_t bytes = changes_.size() * sizeof(CachedRowChange);
  if (sent_.bytes() < bytes) {
    TERRACE_ASSIGN(sent_, backend.allocate({.bytes = 2 * bytes, .tier = Tier::host}));
  }
  std::memcpy(sent_.data(), changes_.data(), bytes);
  const CacheRows op{.shape = shape_,
                     .changes = sent_.as<CachedRowChange>(),
                     .count = changes_.size(),
                     .source = source,
                     .staging = staging,
                     .target = rows()};
  changes_.clear();
  needs_link_ = false;
  return backend.ops().cache_rows(queue, Phase::refill, op);
}

}  // namespace terrace
