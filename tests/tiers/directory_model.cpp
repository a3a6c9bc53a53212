#include "tiers/directory_model.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace terrace::tiers {
namespace {

std::int64_t stamp_of(TimePoint now) { return now.time_since_epoch().count() >> 28; }

}  // namespace

bool DirectoryModel::Chunk::is_there() const {
  return std::ranges::any_of(copies,
                             [](const auto& copy) { return copy.second.state == State::resident; });
}

void DirectoryModel::use(Chunk& chunk, TimePoint now) {
  chunk.last_use = stamp_of(now);
  for (auto& [tier, copy] : chunk.copies) {
    if (copy.state == State::resident) copy.turn = ++turn_;
  }
}

MissReason DirectoryModel::why_missing(const ChunkKey& key, const Digest& root) const {
  if (const auto chunk = chunks_.find(key); chunk != chunks_.end()) {
    for (const auto& [tier, copy] : chunk->second.copies) {
      if (copy.state == State::reserved) return MissReason::late;
    }
  }
  if (gone_.contains(key)) return gone_.at(key).reason;
  return roots_.empty() || roots_.contains(root) ? MissReason::never_stored
                                                 : MissReason::other_namespace;
}

FoundRun DirectoryModel::find(const FindRequest& request) {
  FoundRun found;
  std::size_t length = 0;
  Tier slowest = Tier::host;
  for (const ChunkKey& key : request.keys) {
    const auto chunk = chunks_.find(key);
    if (chunk == chunks_.end() || !chunk->second.is_there()) break;
    const auto fastest = std::ranges::find_if(chunk->second.copies, [](const auto& copy) {
      return copy.second.state == State::resident;
    });
    slowest = std::max(slowest, fastest->first);
    ++length;
    for (std::size_t t = 0; t < stored_tier_count; ++t) {
      if (stored_tiers[t] >= slowest) found.chunks[t] = length;
    }
  }
  for (std::size_t i = length; i-- > 0;) {
    Chunk& chunk = chunks_.at(request.keys[i]);
    chunk.uses = std::min(chunk.uses + 1, 255U);
    use(chunk, request.now);
  }
  found.outcome = length == request.keys.size() ? hit_of(slowest)
                  : length > 0                  ? LookUpOutcome::partial
                               : miss_of(why_missing(request.keys.front(), request.root));
  ++counters_[request.tenant].look_ups;
  ++counters_[request.tenant].ended[static_cast<std::size_t>(found.outcome)];
  return found;
}

void DirectoryModel::amend(TenantId tenant, LookUpOutcome from, LookUpOutcome to) {
  auto& ended = counters_[tenant].ended;
  if (ended[static_cast<std::size_t>(from)] == 0) return;
  --ended[static_cast<std::size_t>(from)];
  ++ended[static_cast<std::size_t>(to)];
}

void DirectoryModel::touch(std::span<const ChunkKey> keys, TimePoint now) {
  for (std::size_t i = keys.size(); i-- > 0;) {
    if (const auto chunk = chunks_.find(keys[i]); chunk != chunks_.end()) use(chunk->second, now);
  }
}

bool DirectoryModel::has_room(const ReserveRequest& request) const {
  const auto chunk = chunks_.find(request.key);
  const TenantId payer = chunk == chunks_.end() ? request.tenant : chunk->second.tenant;
  const auto fits = [&](const TierGauges& gauges, std::uint64_t limit) {
    return gauges.resident + gauges.in_flight + request.bytes <= limit;
  };
  if (const auto quota = quotas.find({payer, request.tier}); quota != quotas.end()) {
    if (!fits(gauges(payer, request.tier), quota->second)) return false;
  }
  if (const auto limit = limits.find(request.tier); limit != limits.end()) {
    if (!fits(gauges({}, request.tier), limit->second)) return false;
  }
  return usage().copies < options_.copies_max &&
         (chunk != chunks_.end() || chunks_.size() < options_.chunks_max);
}

std::optional<Reserved::Kind> DirectoryModel::reserve(const ReserveRequest& request) {
  const auto chunk = chunks_.find(request.key);
  if (chunk != chunks_.end() && chunk->second.copies.contains(request.tier)) {
    return chunk->second.copies.at(request.tier).state == State::resident
               ? Reserved::Kind::resident
               : Reserved::Kind::in_flight;
  }
  roots_.insert(request.root);
  const bool is_known = gone_.contains(request.key);
  if (!has_room(request)) {
    if (chunk == chunks_.end()) {
      gone_[request.key] = {MissReason::no_room, is_known ? gone_.at(request.key).uses : 0};
    }
    return std::nullopt;
  }
  if (chunk == chunks_.end()) {
    chunks_[request.key] = {
        .tenant = request.tenant, .uses = is_known ? gone_.at(request.key).uses : 0, .copies = {}};
  }
  chunks_[request.key].copies[request.tier] = {.bytes = request.bytes};
  return Reserved::Kind::reserved;
}

void DirectoryModel::name(const ReserveRequest& request, CopyHandle handle) {
  chunks_.at(request.key).copies.at(request.tier).handle = handle;
}

std::optional<DirectoryModel::Place> DirectoryModel::find(CopyHandle handle, State state) const {
  for (const auto& [key, chunk] : chunks_) {
    for (const auto& [tier, copy] : chunk.copies) {
      if (copy.handle == handle && copy.state == state) return Place{key, tier};
    }
  }
  return std::nullopt;
}

Answer DirectoryModel::publish(CopyHandle handle, const PublishedCopy& published) {
  const auto place = find(handle, State::reserved);
  if (!place) return Answer::stale;
  Chunk& chunk = chunks_.at(place->key);
  const bool is_first = !chunk.is_there();
  Copy& copy = chunk.copies.at(place->tier);
  copy.state = State::resident;
  copy.place = published.place;
  copy.checksum = published.checksum;
  copy.turn = ++turn_;
  if (is_first) {
    chunk.uses = std::min(chunk.uses + 1, 255U);
    use(chunk, published.now);
    gone_.erase(place->key);
  }
  return Answer::done;
}

Answer DirectoryModel::cancel(CopyHandle handle) {
  const auto place = find(handle, State::reserved);
  if (!place) return Answer::stale;
  take_out(*place);
  return Answer::done;
}

FreedCopy DirectoryModel::take_out(const Place& place) {
  Chunk& chunk = chunks_.at(place.key);
  const Copy copy = chunk.copies.at(place.tier);
  chunk.copies.erase(place.tier);
  const FreedCopy freed{place.key,  place.tier,   copy.place,
                        copy.bytes, chunk.tenant, !chunk.is_there()};
  if (chunk.copies.empty()) chunks_.erase(place.key);
  return freed;
}

void DirectoryModel::remember(const ChunkKey& key, MissReason reason) {
  gone_[key] = {reason, std::min(chunks_.at(key).uses, 3U)};
}

void DirectoryModel::end_expired_leases(TimePoint now) {
  std::erase_if(leases_, [&](const auto& lease) { return lease.second.until <= now; });
}

std::uint32_t DirectoryModel::leases_of(const ChunkKey& key, Tier tier) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(leases_, [&](const auto& lease) {
    return lease.second.key == key && lease.second.tier == tier;
  }));
}

bool DirectoryModel::can_lease(const LeaseRequest& request) {
  end_expired_leases(request.now);
  const auto chunk = chunks_.find(request.key);
  return chunk != chunks_.end() && chunk->second.copies.contains(request.tier) &&
         chunk->second.copies.at(request.tier).state == State::resident;
}

void DirectoryModel::name(const LeaseRequest& request, LeaseHandle handle) {
  leases_[{handle.lease, handle.generation}] = {request.key, request.tier, request.until};
}

Answer DirectoryModel::check(LeaseHandle handle, TimePoint now) const {
  const auto lease = leases_.find({handle.lease, handle.generation});
  return lease != leases_.end() && lease->second.until > now ? Answer::done : Answer::stale;
}

Answer DirectoryModel::end_lease(LeaseHandle handle, TimePoint now) {
  end_expired_leases(now);
  return leases_.erase({handle.lease, handle.generation}) > 0 ? Answer::done : Answer::stale;
}

Answer DirectoryModel::pin(CopyHandle handle) {
  const auto place = find(handle, State::resident);
  if (!place) return Answer::stale;
  ++chunks_.at(place->key).copies.at(place->tier).pins;
  return Answer::done;
}

Answer DirectoryModel::unpin(CopyHandle handle) {
  const auto place = find(handle, State::resident);
  if (!place) return Answer::stale;
  Copy& copy = chunks_.at(place->key).copies.at(place->tier);
  if (copy.pins == 0) return Answer::stale;
  if (--copy.pins == 0) copy.turn = ++turn_;
  return Answer::done;
}

Answer DirectoryModel::drop(CopyHandle handle, DropReason reason) {
  const auto place = find(handle, State::resident);
  if (!place) return Answer::stale;
  Chunk& chunk = chunks_.at(place->key);
  Copy& copy = chunk.copies.at(place->tier);
  copy.state = State::leaving;
  copy.pins = 0;
  copy.turn = ++turn_;
  if (!chunk.is_there()) {
    remember(place->key, reason == DropReason::corrupt ? MissReason::corrupt : MissReason::evicted);
  }
  return Answer::done;
}

std::vector<FreedCopy> DirectoryModel::collect(TimePoint now) {
  end_expired_leases(now);
  std::map<std::uint64_t, Place> leaving;
  for (const auto& [key, chunk] : chunks_) {
    for (const auto& [tier, copy] : chunk.copies) {
      if (copy.state == State::leaving && leases_of(key, tier) == 0) {
        leaving[copy.turn] = {key, tier};
      }
    }
  }
  std::vector<FreedCopy> freed;
  for (const auto& [turn, place] : leaving) freed.push_back(take_out(place));
  return freed;
}

std::optional<DirectoryModel::Place> DirectoryModel::victim(const EvictRequest& request) const {
  // The oldest of each tenant's list, and of those the one whose chunk was used longest ago.
  std::map<TenantId, std::pair<std::uint64_t, Place>> oldest;
  for (const auto& [key, chunk] : chunks_) {
    if (request.tenant && chunk.tenant != *request.tenant) continue;
    const auto found = chunk.copies.find(request.tier);
    if (found == chunk.copies.end() || found->second.state != State::resident) continue;
    if (found->second.pins > 0 || leases_of(key, request.tier) > 0) continue;
    const auto known = oldest.find(chunk.tenant);
    if (known == oldest.end() || found->second.turn < known->second.first) {
      oldest[chunk.tenant] = {found->second.turn, {key, request.tier}};
    }
  }
  std::optional<Place> victim;
  std::int64_t stamp = std::numeric_limits<std::int64_t>::max();
  for (const auto& [tenant, turn_and_place] : oldest) {
    const std::int64_t its = chunks_.at(turn_and_place.second.key).last_use;
    if (its < stamp) victim = turn_and_place.second;
    stamp = std::min(stamp, its);
  }
  return victim;
}

std::vector<FreedCopy> DirectoryModel::evict(const EvictRequest& request) {
  end_expired_leases(request.now);
  std::vector<FreedCopy> freed;
  for (std::uint64_t bytes = 0; bytes < request.bytes; bytes += freed.back().bytes) {
    const auto place = victim(request);
    if (!place) break;
    // The chunk is remembered before it goes with its last copy.
    Chunk& chunk = chunks_.at(place->key);
    const bool is_last = std::ranges::count_if(chunk.copies, [](const auto& copy) {
                           return copy.second.state == State::resident;
                         }) == 1;
    if (is_last) remember(place->key, MissReason::evicted);
    freed.push_back(take_out(*place));
  }
  return freed;
}

TierGauges DirectoryModel::gauges(std::optional<TenantId> tenant, Tier tier) const {
  TierGauges sum;
  for (const auto& [key, chunk] : chunks_) {
    const auto found = chunk.copies.find(tier);
    if ((tenant && chunk.tenant != *tenant) || found == chunk.copies.end()) continue;
    const Copy& copy = found->second;
    (copy.state == State::resident ? sum.resident : sum.in_flight) += copy.bytes;
    if (copy.state == State::resident) ++sum.copies;
    if (copy.pins > 0) sum.pinned += copy.bytes;
  }
  return sum;
}

DirectoryUsage DirectoryModel::usage() const {
  DirectoryUsage usage{.chunks = chunks_.size(), .leases = leases_.size()};
  for (const auto& [key, chunk] : chunks_) usage.copies += chunk.copies.size();
  return usage;
}

}  // namespace terrace::tiers
