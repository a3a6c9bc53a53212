// Look-ups: what is there, how far from the front, and why not more.
#include <algorithm>
#include <cstring>

#include "directory_block.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::tiers {
namespace {

constexpr int last_use_shift = 28;  // nanoseconds to about a quarter second
constexpr std::uint32_t uses_most = 255;

std::uint32_t stamp_of(TimePoint now) noexcept {
  const auto nanoseconds = std::max<std::int64_t>(0, now.time_since_epoch().count());
  return static_cast<std::uint32_t>(nanoseconds >> last_use_shift);
}

NamespaceMark mark_of(const Digest& root) noexcept {
  NamespaceMark mark;
  std::memcpy(mark.data(), root.data(), mark.size());
  return mark;
}

std::span<const NamespaceMark> noted_namespaces(const Header& header) noexcept {
  return std::span(header.namespaces)
      .first(std::min<std::size_t>(header.namespaces_noted, Header::namespaces_max));
}

}  // namespace

std::size_t Directory::Block::fastest(const ChunkRecord& chunk) const noexcept {
  const auto is_there = [&](RecordNumber copy) {
    return copies.has_state(copy, CopyState::resident);
  };
  return static_cast<std::size_t>(std::ranges::find_if(chunk.copies, is_there) -
                                  chunk.copies.begin());
}

void Directory::Block::count_use(ChunkRecord& chunk) noexcept {
  if (chunk.uses < uses_most) ++chunk.uses;
}

void Directory::Block::use(ChunkRecord& chunk, TimePoint now) noexcept {
  chunk.last_use = stamp_of(now);
  for (const RecordNumber copy : chunk.copies) {
    if (copies.has_state(copy, CopyState::resident)) copies.use(copy);
  }
}

MissReason Directory::Block::why_missing(const ChunkKey& key, const Digest& root) const noexcept {
  const RecordNumber chunk = chunks.find(key);
  if (chunk != no_record) {
    for (const RecordNumber copy : chunks[chunk].copies) {
      if (copies.has_state(copy, CopyState::reserved)) return MissReason::late;
    }
  }
  if (const auto known = gone.find(key)) return known->reason;
  const auto noted = noted_namespaces(header);
  const bool is_other = !noted.empty() && std::ranges::find(noted, mark_of(root)) == noted.end();
  return is_other ? MissReason::other_namespace : MissReason::never_stored;
}

void Directory::Block::note_namespace(const Digest& root) noexcept {
  const auto noted = noted_namespaces(header);
  if (std::ranges::find(noted, mark_of(root)) != noted.end()) return;
  header.namespaces[header.namespaces_noted++ % Header::namespaces_max] = mark_of(root);
}

void Directory::Block::count(TenantId tenant, LookUpOutcome outcome) noexcept {
  LookUpCounters& counters = tenants[index(tenant)].counters;
  ++counters.look_ups;
  ++counters.ended[static_cast<std::size_t>(outcome)];
}

Result<FoundRun> Directory::find(const FindRequest& request) {
  if (request.keys.empty() || !block_->has(request.tenant)) {
    return fail(Errc::invalid_argument, "a look-up of {} keys for tenant {} of {}: it needs a key",
                request.keys.size(), index(request.tenant), block_->tenants.size());
  }
  const Block::Change change(block_->header);
  FoundRun found;
  std::size_t slowest = 0;
  block_->run.clear();
  for (const ChunkKey& key : request.keys) {
    const RecordNumber number = block_->chunks.find(key);
    if (number == no_record) break;
    const std::size_t tier = block_->fastest(block_->chunks[number]);
    if (tier == stored_tier_count) break;
    slowest = std::max(slowest, tier);
    block_->run.push_back(number);
    for (std::size_t t = slowest; t < stored_tier_count; ++t) found.chunks[t] = block_->run.size();
  }
  for (auto number = block_->run.rbegin(); number != block_->run.rend(); ++number) {
    Block::count_use(block_->chunks[*number]);
    block_->use(block_->chunks[*number], request.now);
  }
  if (block_->run.size() == request.keys.size()) {
    found.outcome = hit_of(stored_tiers[slowest]);
  } else if (!block_->run.empty()) {
    found.outcome = LookUpOutcome::partial;
  } else {
    found.outcome = miss_of(block_->why_missing(request.keys.front(), request.root));
  }
  block_->count(request.tenant, found.outcome);
  return found;
}

void Directory::count(TenantId tenant, LookUpOutcome outcome) noexcept {
  TERRACE_ASSERT(block_->has(tenant));
  const Block::Change change(block_->header);
  block_->count(tenant, outcome);
}

void Directory::amend(TenantId tenant, LookUpOutcome from, LookUpOutcome to) noexcept {
  TERRACE_ASSERT(block_->has(tenant));
  const Block::Change change(block_->header);
  auto& ended = block_->tenants[index(tenant)].counters.ended;
  if (ended[static_cast<std::size_t>(from)] == 0) return;
  --ended[static_cast<std::size_t>(from)];
  ++ended[static_cast<std::size_t>(to)];
}

void Directory::touch(std::span<const ChunkKey> keys, TimePoint now) {
  const Block::Change change(block_->header);
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const RecordNumber number = block_->chunks.find(*key);
    if (number != no_record) block_->use(block_->chunks[number], now);
  }
}

std::optional<StoredChunk> Directory::chunk(const ChunkKey& key) const {
  const RecordNumber number = block_->chunks.find(key);
  if (number == no_record) return std::nullopt;
  const ChunkRecord& record = block_->chunks[number];
  if (block_->fastest(record) == stored_tier_count) return std::nullopt;
  StoredChunk chunk{
      .tenant = TenantId{record.tenant},
      .uses = record.uses,
      .last_use = TimePoint{Duration{std::int64_t{record.last_use} << last_use_shift}}};
  for (std::size_t tier = 0; tier < stored_tier_count; ++tier) {
    const RecordNumber copy = record.copies[tier];
    if (block_->copies.has_state(copy, CopyState::resident)) {
      chunk.copies[tier] = block_->describe(copy);
    }
  }
  return chunk;
}

}  // namespace terrace::tiers
