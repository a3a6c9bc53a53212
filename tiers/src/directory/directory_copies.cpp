// Copies: how they come, how they are held, and how they go.
#include <algorithm>

#include "directory_block.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::tiers {
namespace {

constexpr std::uint32_t leases_of_copy_max = 65'535;

bool is_stored(Tier tier) noexcept { return number_of(tier) < stored_tier_count; }

bool has_room(const TierGauges& gauges, std::uint64_t limit, std::uint64_t bytes) noexcept {
  const std::uint64_t used = gauges.resident + gauges.in_flight;
  return used <= limit && bytes <= limit - used;
}

tl::unexpected<Error> no_room(Tier tier, Error error) {
  error.lacks = tier;
  return tl::unexpected(error);
}

}  // namespace

Status Directory::Block::check_room(RecordNumber chunk, const ReserveRequest& request) const {
  const std::size_t tier = number_of(request.tier);
  const std::size_t payer = chunk == no_record ? index(request.tenant) : chunks[chunk].tenant;
  const TenantRecord& tenant = tenants[payer];
  if (!has_room(tenant.gauges[tier], tenant.quotas[tier], request.bytes)) {
    return no_room(request.tier,
                   make_error(Errc::out_of_memory,
                              "tenant {} has a quota of {} in tier {}: evict some of its copies",
                              payer, format_size(tenant.quotas[tier]), to_string(request.tier)));
  }
  if (!has_room(header.gauges[tier], header.limits[tier], request.bytes)) {
    return no_room(request.tier,
                   make_error(Errc::out_of_memory, "tier {} has a limit of {}: evict some copies",
                              to_string(request.tier), format_size(header.limits[tier])));
  }
  if (copies.pool().is_full() || (chunk == no_record && chunks.pool().is_full())) {
    return no_room(request.tier,
                   make_error(Errc::out_of_memory,
                              "the directory is full with {} chunks and {} copies: evict some",
                              header.chunks.used, header.copies.used));
  }
  return {};
}

void Directory::Block::end_expired_leases(TimePoint now) noexcept {
  while (const auto lease = leases.expired(now)) --copies[leases.end(*lease)].leases;
}

void Directory::Block::erase_if_empty(RecordNumber chunk) noexcept {
  const auto is_none = [](RecordNumber copy) { return copy == no_record; };
  if (std::ranges::all_of(chunks[chunk].copies, is_none)) chunks.erase(chunk);
}

FreedCopy Directory::Block::take_out(RecordNumber number) noexcept {
  const CopyRecord& copy = copies[number];
  const RecordNumber chunk = copy.chunk;
  FreedCopy freed{.key = chunks[chunk].key,
                  .tier = stored_tiers[copy.tier],
                  .place = copy.place,
                  .bytes = copy.bytes,
                  .tenant = TenantId{chunks[chunk].tenant}};
  copies.erase(number);
  freed.was_last = fastest(chunks[chunk]) == stored_tier_count;
  return freed;
}

StoredCopy Directory::Block::describe(RecordNumber number) const noexcept {
  const CopyRecord& copy = copies[number];
  return {.handle = copies.handle_of(number),
          .place = copy.place,
          .bytes = copy.bytes,
          .checksum = copy.checksum,
          .pins = static_cast<std::uint32_t>(copy.pins),
          .leases = static_cast<std::uint32_t>(copy.leases)};
}

RecordNumber Directory::Block::victim(TenantRecord& tenant) const noexcept {
  RecordNumber& search = tenant.search;
  while (search != no_record && copies[search].leases > 0) search = copies[search].newer;
  return search;
}

RecordNumber Directory::Block::victim(std::span<TenantRecord> among) const noexcept {
  RecordNumber oldest = no_record;
  for (TenantRecord& tenant : among) {
    const RecordNumber copy = victim(tenant);
    if (copy == no_record) continue;
    if (oldest == no_record ||
        chunks[copies[copy].chunk].last_use < chunks[copies[oldest].chunk].last_use) {
      oldest = copy;
    }
  }
  return oldest;
}

Result<Reserved> Directory::reserve(const ReserveRequest& request) {
  if (!is_stored(request.tier) || !block_->has(request.tenant) || request.bytes == 0 ||
      request.bytes > copy_bytes_max) {
    return fail(Errc::invalid_argument, "no room for {} bytes of tenant {} in tier {} can be taken",
                request.bytes, index(request.tenant), to_string(request.tier));
  }
  const Block::Change change(block_->header);
  const std::size_t tier = number_of(request.tier);
  RecordNumber chunk = block_->chunks.find(request.key);
  if (chunk != no_record && block_->chunks[chunk].copies[tier] != no_record) {
    const RecordNumber copy = block_->chunks[chunk].copies[tier];
    if (!block_->copies.has_state(copy, CopyState::resident)) {
      return Reserved{.kind = Reserved::Kind::in_flight};
    }
    return Reserved{.kind = Reserved::Kind::resident, .handle = block_->copies.handle_of(copy)};
  }
  block_->note_namespace(request.root);
  const auto known = block_->gone.find(request.key);
  const std::uint32_t uses = known ? known->uses : 0;
  if (Status room = block_->check_room(chunk, request); !room) {
    if (chunk == no_record) {
      block_->gone.remember(request.key, {.reason = MissReason::no_room, .uses = uses});
    }
    return tl::unexpected(room.error());
  }
  if (chunk == no_record) {
    chunk = block_->chunks.insert(request.key);
    ChunkRecord& record = block_->chunks[chunk];
    record.tenant = static_cast<std::uint16_t>(request.tenant);
    record.uses = static_cast<std::uint8_t>(uses);
    record.state = ChunkRecord::State::used;
  }
  return Reserved{.handle =
                      block_->copies.handle_of(block_->copies.reserve(chunk, tier, request.bytes))};
}

Answer Directory::publish(CopyHandle reserved, const PublishedCopy& copy) {
  const RecordNumber number = block_->copies.find(reserved, CopyState::reserved);
  if (number == no_record) return Answer::stale;
  const Block::Change change(block_->header);
  ChunkRecord& chunk = block_->chunks[block_->copies[number].chunk];
  const bool is_first = block_->fastest(chunk) == stored_tier_count;
  block_->copies.publish(number, copy);
  if (is_first) {
    Block::count_use(chunk);
    block_->use(chunk, copy.now);
  }
  return Answer::done;
}

Answer Directory::cancel(CopyHandle reserved, std::optional<MissReason> why) {
  const RecordNumber number = block_->copies.find(reserved, CopyState::reserved);
  if (number == no_record) return Answer::stale;
  const Block::Change change(block_->header);
  const RecordNumber chunk = block_->copies[number].chunk;
  block_->copies.erase(number);
  const ChunkRecord& record = block_->chunks[chunk];
  if (why && block_->fastest(record) == stored_tier_count) {
    block_->gone.remember(record.key, {.reason = *why, .uses = record.uses});
  }
  block_->erase_if_empty(chunk);
  return Answer::done;
}

Result<std::optional<Leased>> Directory::lease(const LeaseRequest& request) {
  if (!is_stored(request.tier) || request.until <= request.now) {
    return fail(Errc::invalid_argument, "a lease in tier {} has to end after it begins",
                to_string(request.tier));
  }
  const Block::Change change(block_->header);
  block_->end_expired_leases(request.now);
  const RecordNumber chunk = block_->chunks.find(request.key);
  if (chunk == no_record) return std::optional<Leased>();
  const RecordNumber number = block_->chunks[chunk].copies[number_of(request.tier)];
  if (!block_->copies.has_state(number, CopyState::resident)) return std::optional<Leased>();
  CopyRecord& copy = block_->copies[number];
  if (block_->leases.is_full() || copy.leases == leases_of_copy_max) {
    return fail(Errc::out_of_memory, "{} leases are held, {} of this copy: wait until some end",
                block_->header.leases.used, static_cast<std::uint64_t>(copy.leases));
  }
  ++copy.leases;
  return std::optional<Leased>(Leased{.handle = block_->leases.begin(number, request.until),
                                      .copy = block_->describe(number)});
}

Answer Directory::check(LeaseHandle lease, TimePoint now) const noexcept {
  return block_->leases.holds(lease, now) ? Answer::done : Answer::stale;
}

Answer Directory::end_lease(LeaseHandle lease, TimePoint now) {
  const Block::Change change(block_->header);
  block_->end_expired_leases(now);
  if (!block_->leases.holds(lease, now)) return Answer::stale;
  --block_->copies[block_->leases.end(lease)].leases;
  return Answer::done;
}

Result<Answer> Directory::pin(CopyHandle copy) {
  const RecordNumber number = block_->copies.find(copy, CopyState::resident);
  if (number == no_record) return Answer::stale;
  if (block_->copies[number].pins == pins_max) {
    return fail(Errc::out_of_memory, "a copy is pinned {} times: unpin it first", pins_max);
  }
  const Block::Change change(block_->header);
  block_->copies.pin(number);
  return Answer::done;
}

Answer Directory::unpin(CopyHandle copy) {
  const RecordNumber number = block_->copies.find(copy, CopyState::resident);
  if (number == no_record || block_->copies[number].pins == 0) return Answer::stale;
  const Block::Change change(block_->header);
  block_->copies.unpin(number);
  return Answer::done;
}

Answer Directory::drop(CopyHandle copy, DropReason reason) {
  const RecordNumber number = block_->copies.find(copy, CopyState::resident);
  if (number == no_record) return Answer::stale;
  const Block::Change change(block_->header);
  block_->copies.drop(number);
  const ChunkRecord& chunk = block_->chunks[block_->copies[number].chunk];
  if (block_->fastest(chunk) == stored_tier_count) {
    block_->gone.remember(chunk.key, {.reason = reason == DropReason::corrupt ? MissReason::corrupt
                                                                              : MissReason::evicted,
                                      .uses = chunk.uses});
  }
  return Answer::done;
}

std::uint64_t Directory::collect(TimePoint now, FunctionRef<void(const FreedCopy&)> freed) {
  const Block::Change change(block_->header);
  block_->end_expired_leases(now);
  std::uint64_t bytes = 0;
  for (RecordNumber number = block_->header.leaving.oldest; number != no_record;) {
    const RecordNumber next = block_->copies[number].newer;
    if (block_->copies[number].leases == 0) {
      const RecordNumber chunk = block_->copies[number].chunk;
      const FreedCopy copy = block_->take_out(number);
      block_->erase_if_empty(chunk);
      bytes += copy.bytes;
      freed(copy);
    }
    number = next;
  }
  return bytes;
}

std::uint64_t Directory::evict(const EvictRequest& request,
                               FunctionRef<void(const FreedCopy&)> freed) {
  TERRACE_ASSERT(is_stored(request.tier));
  TERRACE_ASSERT(!request.tenant || block_->has(*request.tenant));
  const Block::Change change(block_->header);
  block_->end_expired_leases(request.now);
  const std::size_t tier = number_of(request.tier);
  const auto among =
      request.tenant ? block_->tenants.subspan(index(*request.tenant), 1) : block_->tenants;
  for (TenantRecord& tenant : among) tenant.search = tenant.lists[tier].oldest;
  std::uint64_t bytes = 0;
  while (bytes < request.bytes) {
    const RecordNumber victim = block_->victim(among);
    if (victim == no_record) break;
    const RecordNumber chunk = block_->copies[victim].chunk;
    block_->copies.tenant_of(block_->copies[victim]).search = block_->copies[victim].newer;
    const FreedCopy copy = block_->take_out(victim);
    if (copy.was_last) {
      block_->gone.remember(copy.key,
                            {.reason = MissReason::evicted, .uses = block_->chunks[chunk].uses});
    }
    block_->erase_if_empty(chunk);
    bytes += copy.bytes;
    freed(copy);
  }
  return bytes;
}

}  // namespace terrace::tiers
