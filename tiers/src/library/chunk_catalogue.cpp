#include "chunk_catalogue.hpp"

#include <algorithm>
#include <iterator>

#include "directory/copy_table.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/tiers/chunk_store.hpp"

namespace terrace::tiers {

ChunkCatalogue::ChunkCatalogue(offload::AlignedBytes block, Directory directory, std::uint64_t seed)
    : block_(std::move(block)),
      directory_(std::move(directory)),
      leases_(0, KeyHash{.seed = seed}) {}

Result<std::unique_ptr<ChunkCatalogue>> ChunkCatalogue::create(const DirectoryOptions& options) {
  TERRACE_ASSIGN(const std::uint64_t bytes, Directory::block_bytes(options));
  offload::AlignedBytes block(bytes);
  TERRACE_ASSIGN(Directory directory, Directory::create(block.span(), options));
  return std::unique_ptr<ChunkCatalogue>(
      new ChunkCatalogue(std::move(block), std::move(directory), options.seed));
}

Result<Reserved> ChunkCatalogue::reserve(const Entry& entry) {
  const ReserveRequest request{.root = entry.root,
                               .key = entry.key,
                               .tier = Tier::nvme,
                               .tenant = entry.tenant,
                               .bytes = entry.bytes};
  Result<Reserved> reserved = directory_.reserve(request);
  const bool is_full = !reserved && reserved.error().code == Errc::out_of_memory;
  return is_full && evict(1) > 0 ? directory_.reserve(request) : reserved;
}

std::vector<ChunkKey> ChunkCatalogue::lacking(std::span<const ChunkKey> keys) const {
  std::vector<ChunkKey> lacking;
  std::ranges::copy_if(keys, std::back_inserter(lacking),
                       [&](const ChunkKey& key) { return !has(key); });
  return lacking;
}

void ChunkCatalogue::publish(CopyHandle reserved, const Manifest& manifest, TimePoint now) {
  publish_parts(reserved, names_of(manifest), manifest.checksum(), now);
}

void ChunkCatalogue::publish_parts(CopyHandle reserved, const std::vector<PartName>& parts,
                                   std::uint64_t checksum, TimePoint now) {
  const Answer published = directory_.publish(
      reserved, {.place = parts_.number_of(parts), .checksum = checksum, .now = now});
  TERRACE_ASSERT(published == Answer::done);
}

void ChunkCatalogue::take_up(const Entry& entry, const Manifest* manifest, TimePoint now) {
  const Result<Reserved> reserved = reserve(entry);
  if (!reserved || reserved->kind != Reserved::Kind::reserved) return;
  if (manifest != nullptr) return publish(reserved->handle, *manifest, now);
  publish_parts(reserved->handle, {}, 0, now);
  drop(entry.key, DropReason::corrupt);
}

std::vector<ChunkKey> ChunkCatalogue::lease(std::span<const ChunkKey> keys, TimePoint now) {
  std::vector<ChunkKey> leased;
  for (const ChunkKey& key : keys) {
    if (!has(key)) continue;
    Lease& lease = leases_[key];
    if (lease.holders == 0) {
      const auto begun =
          directory_.lease({.key = key, .tier = Tier::nvme, .now = now, .until = TimePoint::max()});
      TERRACE_ASSERT(begun && *begun);  // a copy has one at most, and there is one for each
      lease.handle = (*begun)->handle;
    }
    ++lease.holders;
    leased.push_back(key);
  }
  return leased;
}

void ChunkCatalogue::return_lease(std::span<const ChunkKey> keys) {
  for (const ChunkKey& key : keys) {
    const auto lease = leases_.find(key);
    if (--lease->second.holders > 0) continue;
    const Answer ended = directory_.end_lease(lease->second.handle, TimePoint{});
    TERRACE_ASSERT(ended == Answer::done);
    leases_.erase(lease);
  }
  collect();
}

void ChunkCatalogue::drop(const ChunkKey& key, DropReason reason) {
  const auto chunk = directory_.chunk(key);
  if (!chunk) return;
  const auto& copy = chunk->copies[number_of(Tier::nvme)];
  if (directory_.drop(copy->handle, reason) == Answer::done) collect();
}

void ChunkCatalogue::collect() {
  directory_.collect(TimePoint{}, [&](const FreedCopy& copy) { note_freed(copy); });
}

std::uint64_t ChunkCatalogue::evict(std::uint64_t bytes, std::optional<TenantId> tenant) {
  const EvictRequest request{.tier = Tier::nvme, .bytes = bytes, .tenant = tenant};
  return directory_.evict(request, [&](const FreedCopy& copy) {
    note_freed(copy);
    ++evicted_;
  });
}

void ChunkCatalogue::note_freed(const FreedCopy& copy) {
  const std::vector<PageKey> pages = ChunkStore::pages_of(copy.key, parts_.list(copy.place));
  to_erase.insert(to_erase.end(), pages.begin(), pages.end());
}

}  // namespace terrace::tiers
