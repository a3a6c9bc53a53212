#include "chunk_service.hpp"

#include <algorithm>
#include <utility>

namespace terrace::node {
namespace {

/// Stands for the tenant without a salt. It is longer than the salts that clients may have.
const std::string no_salt(wire::salt_bytes_max + 1, '-');

}  // namespace

ChunkService::ChunkService(std::shared_ptr<tiers::ChunkLibrary> library, const Clock& clock,
                           const TenantQuotas& quotas)
    : library_(std::move(library)), clock_(clock), quotas_(quotas) {
  library_->limit_tenants(this);
}

Result<Tenant> ChunkService::tenant_of(const std::string& salt) {
  const tiers::TenantSalt secret(salt);
  Tenant tenant;
  // Tenant 0 is a runtime's without a salt: of its chunks in the file, no client's quota is.
  TERRACE_ASSIGN(tenant.number,
                 library_->tenant_of(secret.is_empty() ? tiers::TenantSalt(no_salt) : secret));
  if (!secret.is_empty()) {
    TERRACE_ASSIGN(const tiers::Digest digest, tiers::digest_of(secret));
    tenant.digest = tiers::to_string(digest);
  }
  const std::lock_guard lock(mutex_);
  // Tenants beyond those that the library tells apart have one account, the first one's.
  const auto [account, is_new] = accounts_.try_emplace(tenant.number);
  if (is_new) {
    account->second.digest = tenant.digest;
    account->second.quota = quotas_.of(tenant.digest);
  }
  return tenant;
}

Result<tiers::ChunkKey> ChunkService::key_of(const Tenant& tenant, const tiers::ChunkKey& key) {
  if (tenant.digest.empty()) return key;
  return tiers::key_after(key, tenant.digest);
}

Result<std::vector<tiers::ChunkKey>> ChunkService::keys_of(const Tenant& tenant,
                                                           std::span<const tiers::ChunkKey> keys) {
  std::vector<tiers::ChunkKey> own;
  own.reserve(keys.size());
  for (const tiers::ChunkKey& key : keys) {
    TERRACE_ASSIGN(own.emplace_back(), key_of(tenant, key));
  }
  return own;
}

Result<tiers::LookUp> ChunkService::find(const Tenant& tenant, const wire::Find& find) {
  TERRACE_ASSIGN(const std::vector<tiers::ChunkKey> keys, keys_of(tenant, find.keys));
  std::shared_ptr<const tiers::Manifest> known;  // as long as the library looks at it
  std::size_t known_count = 0;
  const auto find_known = [&](const tiers::ChunkKey& key) -> const tiers::Manifest* {
    known = manifests_.find(key);
    if (known != nullptr) ++known_count;
    return known.get();
  };
  tiers::LookUp look_up = library_->find_run(
      {.root = find.root, .tenant = tenant.number, .keys = keys, .now = clock_.now()}, find.tokens,
      find_known);
  for (std::size_t i = known_count; i < look_up.run.size(); ++i) manifests_.keep(look_up.run[i]);
  return look_up;
}

Result<std::optional<tiers::LookUp>> ChunkService::find_in_memory(const Tenant& tenant,
                                                                  const wire::Find& find) {
  TERRACE_ASSIGN(const std::vector<tiers::ChunkKey> keys, keys_of(tenant, find.keys));
  std::vector<std::shared_ptr<const tiers::Manifest>> known;
  for (const tiers::ChunkKey& key : keys) {
    known.push_back(manifests_.find(key));
    if (known.back() == nullptr) return std::nullopt;
  }
  // Chunks of the run are those of the keys, from the front.
  std::size_t next = 0;
  return library_->find_run_here(
      {.root = find.root, .tenant = tenant.number, .keys = keys, .now = clock_.now()}, find.tokens,
      [&](const tiers::ChunkKey& /*key*/) { return known[next++].get(); });
}

tiers::ChunkLease ChunkService::lease(const Tenant& tenant, const tiers::ChunkKey& key) {
  const tiers::Digest no_root{};
  // The library of a file knows all of its chunks, and asks nobody.
  return library_
      ->lease({.root = no_root, .tenant = tenant.number, .keys = {&key, 1}, .now = clock_.now()})
      .value_or(tiers::ChunkLease());
}

Result<ChunkService::LeasedChunks> ChunkService::lease_all(const Tenant& tenant,
                                                           const wire::Lease& lease,
                                                           std::uint64_t bytes_max) {
  TERRACE_ASSIGN(const std::vector<tiers::ChunkKey> keys, keys_of(tenant, lease.keys));
  const tiers::Digest no_root{};
  const tiers::FindRequest request{
      .root = no_root, .tenant = tenant.number, .keys = keys, .now = clock_.now()};
  if (lease.brings_last != 0) library_->bring_last(request);
  LeasedChunks leased{.look_up = {.tenant = tenant.number}};
  TERRACE_ASSIGN(leased.look_up.lease, library_->lease(request));
  library_->touch(request);
  std::span<const tiers::ChunkKey> there = leased.look_up.lease.chunks();  // in the keys' order
  for (std::uint32_t number = 0; number < keys.size() && !there.empty(); ++number) {
    if (there.front() != keys[number]) continue;
    there = there.subspan(1);
    const auto whole = manifest(keys[number]);
    if (!whole) continue;
    const std::uint64_t bytes = bytes_in_memory(**whole);
    if (bytes > bytes_max) break;
    bytes_max -= bytes;
    leased.look_up.run.push_back(**whole);
    leased.numbers.push_back(number);
  }
  return leased;
}

Result<std::shared_ptr<const tiers::Manifest>> ChunkService::manifest(const tiers::ChunkKey& key) {
  if (auto known = manifests_.find(key)) return known;
  TERRACE_ASSIGN(tiers::Manifest read, library_->manifest(key));
  manifests_.keep(read);
  return std::make_shared<const tiers::Manifest>(std::move(read));
}

Result<std::uint64_t> ChunkService::bytes_of(const tiers::ChunkKey& key) {
  TERRACE_ASSIGN(const auto whole, manifest(key));
  return whole->bytes();
}

Result<ChunkService::PublishedChunk> ChunkService::publish(const Publication& chunk,
                                                           std::vector<tiers::PartBytes> parts) {
  const std::uint64_t bytes = tiers::bytes_of(parts);
  TERRACE_TRY(take(chunk.tenant.number, bytes));
  // A chunk that went may come again with other parts. A look-up that began before may keep the old
  // manifest once more; should it be used, the parts do not fit it, and are a miss.
  manifests_.forget(chunk.key);
  PublishedChunk published;
  const Result<tiers::Published> state = library_->publish({.root = chunk.root,
                                                            .tenant = chunk.tenant.number,
                                                            .key = chunk.key,
                                                            .tokens = chunk.tokens,
                                                            .now = clock_.now()},
                                                           std::move(parts), published.lease);
  manifests_.forget(chunk.key);
  give_back(chunk.tenant.number, bytes);
  if (!state) return tl::unexpected(state.error());
  published.state = *state;
  return published;
}

Status ChunkService::take(tiers::TenantId tenant, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  Account& account = accounts_[tenant];
  account.under_way += bytes;
  for (;;) {
    const std::uint64_t quota = account.quota;
    const std::uint64_t wanted = account.under_way;
    lock.unlock();
    const std::uint64_t used = library_->gauges(tenant).resident + wanted;
    if (used <= quota) return {};
    const bool may_fit = bytes <= quota;
    const bool made_room = may_fit && library_->make_room(used - quota, tenant) > 0;
    lock.lock();
    if (made_room) continue;
    account.under_way -= bytes;
    return fail(Errc::out_of_memory, "the tenant's quota of {} bytes has no room for {} more",
                quota, bytes);
  }
}

void ChunkService::give_back(tiers::TenantId tenant, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  accounts_[tenant].under_way -= bytes;
}

void ChunkService::set_quotas(const TenantQuotas& quotas) {
  const std::lock_guard lock(mutex_);
  quotas_ = quotas;
  for (auto& [number, account] : accounts_) account.quota = quotas.of(account.digest);
}

void ChunkService::enforce_quotas() {
  std::vector<std::pair<tiers::TenantId, std::uint64_t>> quotas;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, account] : accounts_) quotas.emplace_back(number, account.quota);
  }
  for (const auto& [number, quota] : quotas) {
    const std::uint64_t used = library_->gauges(number).resident;
    if (used > quota) library_->make_room(used - quota, number);
  }
}

std::uint64_t ChunkService::tenants() const {
  const std::lock_guard lock(mutex_);
  return accounts_.size();
}

}  // namespace terrace::node
