// The checks of open(): every number of a record is one of a record in use, and counts are those of
// the records that there are. So no later call can leave the block, or count below zero.
#include <algorithm>
#include <vector>

#include "directory_block.hpp"

namespace terrace::tiers {
namespace {

tl::unexpected<Error> damaged(std::string_view part) {
  return fail(Errc::corrupt, "the directory's {} are damaged: make a new directory", part);
}

/// Whether a pool's free records are as many as are not in use, each free.
template <typename Pool, typename IsFree>
bool has_right_free_list(const Pool& pool, RecordNumber (*next)(const Pool&, RecordNumber),
                         IsFree is_free) {
  const PoolState& state = pool.state();
  if (state.fresh == 0 || state.fresh > pool.size_max() + 1 || state.used >= state.fresh) {
    return false;
  }
  std::uint64_t left = state.fresh - 1 - state.used;
  for (RecordNumber free = state.first_free; free != no_record; free = next(pool, free)) {
    if (free >= state.fresh || left == 0 || !is_free(pool[free])) return false;
    --left;
  }
  return left == 0;
}

template <typename Pool, typename IsFree>
bool counts_its_used(const Pool& pool, IsFree is_free) {
  std::uint64_t used = 0;
  for (RecordNumber number = 1; number < pool.state().fresh; ++number) {
    if (!is_free(pool[number])) ++used;
  }
  return used == pool.state().used;
}

bool is_free_chunk(const ChunkRecord& chunk) { return chunk.state == ChunkRecord::State::free; }
bool is_free_copy(const CopyRecord& copy) {
  return static_cast<CopyState>(copy.state) == CopyState::free;
}
bool is_free_lease(const LeaseRecord& lease) { return lease.copy == no_record; }

RecordNumber next_chunk(const ChunkTable::Pool& pool, RecordNumber free) { return pool[free].next; }
RecordNumber next_copy(const CopyTable::Pool& pool, RecordNumber free) { return pool[free].newer; }
RecordNumber next_lease(const LeaseTable::Pool& pool, RecordNumber free) {
  return pool[free].heap_place;
}

}  // namespace

bool Directory::Block::has_right_pools() const {
  return has_right_free_list(chunks.pool(), next_chunk, is_free_chunk) &&
         counts_its_used(chunks.pool(), is_free_chunk) &&
         has_right_free_list(copies.pool(), next_copy, is_free_copy) &&
         counts_its_used(copies.pool(), is_free_copy) &&
         has_right_free_list(leases.pool(), next_lease, is_free_lease) &&
         counts_its_used(leases.pool(), is_free_lease);
}

bool Directory::Block::has_right_chunks() const {
  for (RecordNumber number = 1; number < header.chunks.fresh; ++number) {
    const ChunkRecord& chunk = chunks[number];
    if (is_free_chunk(chunk)) continue;
    if (chunk.state > ChunkRecord::State::used || chunk.tenant >= tenants.size()) {
      return false;
    }
    std::size_t there = 0;
    for (std::size_t tier = 0; tier < stored_tier_count; ++tier) {
      const RecordNumber copy = chunk.copies[tier];
      if (copy == no_record) continue;
      if (copy >= header.copies.fresh || is_free_copy(copies[copy])) return false;
      if (copies[copy].chunk != number || copies[copy].tier != tier) return false;
      ++there;
    }
    if (there == 0) return false;
  }
  return chunks.is_whole();
}

bool Directory::Block::has_right_copies() const {
  for (RecordNumber number = 1; number < header.copies.fresh; ++number) {
    const CopyRecord& copy = copies[number];
    if (is_free_copy(copy)) continue;
    if (copy.chunk == no_record || copy.chunk >= header.chunks.fresh ||
        copy.tier >= stored_tier_count || copy.bytes == 0) {
      return false;
    }
    if (chunks[copy.chunk].copies[copy.tier] != number) return false;
    if (copy.pins > 0 && !copies.has_state(number, CopyState::resident)) return false;
  }
  return true;
}

bool Directory::Block::has_right_leases() const {
  if (!leases.is_whole(header.copies.fresh)) return false;
  std::vector<std::uint32_t> held(header.copies.fresh);
  for (RecordNumber number = 1; number < header.leases.fresh; ++number) {
    ++held[leases.pool()[number].copy];
  }
  for (RecordNumber number = 1; number < header.copies.fresh; ++number) {
    const bool can_be_held = copies.has_state(number, CopyState::resident) ||
                             copies.has_state(number, CopyState::leaving);
    if (held[number] > 0 && !can_be_held) return false;
    if (held[number] != copies[number].leases) return false;
  }
  return true;
}

Status Directory::Block::audit() const {
  if (!has_right_pools()) return damaged("lists of free records");
  if (!has_right_copies()) return damaged("copies");
  if (!has_right_chunks()) return damaged("chunks");
  if (!has_right_leases()) return damaged("leases");
  if (!has_right_lists()) return damaged("lists of copies");
  if (!has_right_counts()) return damaged("gauges and counters");
  return {};
}

}  // namespace terrace::tiers
