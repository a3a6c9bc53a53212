#include "terrace/node/daemon_chunks.hpp"

#include <algorithm>
#include <utility>

#include "lease_keeper.hpp"
#include "leased_parts.hpp"
#include "protocol/messages.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::node {
namespace {

using tiers::ChunkKey;
using tiers::LookUpOutcome;
using tiers::Manifest;

constexpr std::size_t open_tenants_most = 32;
constexpr std::size_t tenants_most = std::size_t{1} << 16;

/// The daemon has checked the bytes, and keeps the checksums to itself.
Result<Manifest> manifest_of(const DaemonChunk& chunk) {
  std::vector<tiers::Part> parts;
  for (const DaemonPart& part : *chunk.parts) {
    parts.push_back({.name = part.name, .bytes = part.bytes});
  }
  return Manifest::create(chunk.key, chunk.tokens, std::move(parts));
}

std::uint64_t tokens_of(std::span<const Manifest> run) {
  std::uint64_t tokens = 0;
  for (const Manifest& chunk : run) tokens += chunk.tokens();
  return tokens;
}

std::span<const ChunkKey> first_of(std::span<const ChunkKey> keys) {
  return keys.first(std::min(keys.size(), wire::find_keys_max));
}

}  // namespace

/// Chunks that the daemon has leased to this process.
class DaemonChunks::Held final : public tiers::HeldChunks {
 public:
  Held(std::shared_ptr<LeasedParts> parts, std::vector<ChunkKey> chunks) noexcept
      : HeldChunks(std::move(chunks)), parts_(std::move(parts)) {}

  [[nodiscard]] LeasedParts& parts() const noexcept { return *parts_; }
  void add(const ChunkKey& chunk) { chunks_.push_back(chunk); }

  [[nodiscard]] bool is_live() const noexcept override { return parts_->is_live(); }
  [[nodiscard]] std::shared_ptr<Store> store() const noexcept override { return parts_; }
  [[nodiscard]] Result<std::vector<std::byte>> read(const Manifest& manifest,
                                                    const tiers::Part& part) override {
    std::vector<std::byte> bytes(part.bytes);
    PageRequest get{.verb = PageVerb::get,
                    .key = tiers::page_key(manifest.chunk(), part.name),
                    .data = bytes.data(),
                    .bytes = bytes.size()};
    TERRACE_TRY(parts_->submit({&get, 1}));
    TERRACE_TRY(get.status);
    return bytes;
  }
  /// The daemon has noticed it itself.
  void drop(const ChunkKey& /*chunk*/, const Error& /*why*/) override {}

 private:
  std::shared_ptr<LeasedParts> parts_;
};

DaemonChunks::DaemonChunks(const DaemonChunksOptions& options)
    : options_(options), leases_(std::make_unique<LeaseKeeper>()) {}
DaemonChunks::~DaemonChunks() = default;

Result<std::shared_ptr<DaemonChunks>> DaemonChunks::create(const DaemonChunksOptions& options) {
  std::shared_ptr<DaemonChunks> chunks(new DaemonChunks(options));
  TERRACE_TRY(chunks->make_client({}, Use::finding));
  return chunks;
}

Result<DaemonChunks::Client> DaemonChunks::make_client(const tiers::TenantSalt& salt,
                                                       Use use) const {
  DaemonClientOptions options = options_.client;
  options.salt = salt;
  if (use == Use::publishing) options.deadline = options_.writing_deadline;
  TERRACE_ASSIGN(Client client, DaemonClient::create(options));
  return client;
}

Result<tiers::TenantId> DaemonChunks::tenant_of(const tiers::TenantSalt& salt) {
  const std::lock_guard lock(mutex_);
  const auto known = numbers_.find(salt.secret());
  if (known != numbers_.end()) return known->second;
  if (tenants_.size() == tenants_most) {
    return fail(Errc::out_of_memory, "a process tells {} salts apart at most", tenants_most);
  }
  TERRACE_TRY(make_client(salt, Use::finding));
  const auto number = static_cast<tiers::TenantId>(tenants_.size());
  tenants_.push_back({.salt = salt});
  numbers_.emplace(salt.secret(), number);
  return number;
}

DaemonChunks::Client DaemonChunks::client_of(tiers::TenantId number, Use use) {
  const std::lock_guard lock(mutex_);
  TERRACE_ASSERT(static_cast<std::size_t>(number) < tenants_.size());
  Tenant& tenant = tenants_[static_cast<std::size_t>(number)];
  Client& client = use == Use::finding ? tenant.finding : tenant.publishing;
  if (client == nullptr) client = *make_client(tenant.salt, use);  // as tenant_of() has tried
  tenant.used = ++uses_;
  close_others(tenant);
  return client;
}

void DaemonChunks::close_others(const Tenant& used) {
  const auto is_open = [](const Tenant& each) {
    return each.finding != nullptr || each.publishing != nullptr;
  };
  if (static_cast<std::size_t>(std::ranges::count_if(tenants_, is_open)) <= open_tenants_most) {
    return;
  }
  Tenant* oldest = nullptr;
  for (Tenant& each : tenants_) {
    if (&each == &used || !is_open(each)) continue;
    if (oldest == nullptr || each.used < oldest->used) oldest = &each;
  }
  // Leases have their connection until they end.
  oldest->finding = nullptr;
  oldest->publishing = nullptr;
}

tiers::ChunkLease DaemonChunks::keep(Client client, DaemonLease lease,
                                     std::span<const DaemonChunk> chunks, Use use) {
  std::vector<ChunkKey> keys;
  for (const DaemonChunk& chunk : chunks) keys.push_back(chunk.key);
  const auto parts = std::make_shared<LeasedParts>(std::move(client), std::move(lease), chunks);
  // Leases of a publisher are used all the time: publish() renews them.
  if (use == Use::finding && !chunks.empty()) leases_->keep(parts);
  return tiers::ChunkLease(std::make_unique<Held>(parts, std::move(keys)));
}

tiers::LookUp DaemonChunks::find_run(const tiers::FindRequest& request, std::uint64_t tokens) {
  tiers::LookUp look_up{.tenant = request.tenant};
  if (!request.keys.empty()) {
    const Client client = client_of(request.tenant, Use::finding);
    DaemonLookUp found =
        client->find({.root = request.root, .keys = first_of(request.keys), .tokens = tokens});
    look_up.outcome = found.outcome;
    for (const DaemonChunk& chunk : found.run) {
      Result<Manifest> manifest = manifest_of(chunk);
      if (!manifest) break;
      look_up.run.push_back(*std::move(manifest));
    }
    const bool ends_early = look_up.run.size() < std::max(found.run.size(), request.keys.size());
    if (!found.run.empty() && ends_early) {
      look_up.outcome = look_up.run.empty() ? LookUpOutcome::miss_corrupt : LookUpOutcome::partial;
    }
    look_up.lease = keep(client, std::move(found.lease),
                         std::span(found.run).first(look_up.run.size()), Use::finding);
  }
  count(look_up, tokens);
  return look_up;
}

void DaemonChunks::count(const tiers::LookUp& look_up, std::uint64_t tokens) {
  const std::lock_guard lock(mutex_);
  ++counters_.look_ups.look_ups;
  ++counters_.look_ups.ended[static_cast<std::size_t>(look_up.outcome)];
  counters_.tokens_asked += tokens;
  counters_.tokens_found += tokens_of(look_up.run);
}

void DaemonChunks::amend(tiers::LookUp& look_up, std::size_t usable, tiers::MissReason why) {
  const LookUpOutcome before =
      std::exchange(look_up.outcome, usable > 0 ? LookUpOutcome::partial : tiers::miss_of(why));
  const std::lock_guard lock(mutex_);
  --counters_.look_ups.ended[static_cast<std::size_t>(before)];
  ++counters_.look_ups.ended[static_cast<std::size_t>(look_up.outcome)];
  counters_.tokens_found -= tokens_of(std::span(look_up.run).subspan(usable));
  look_up.run.erase(look_up.run.begin() + static_cast<std::ptrdiff_t>(usable), look_up.run.end());
}

Result<std::optional<tiers::LeasedChunk>> DaemonChunks::find_last(
    const tiers::FindRequest& request) {
  const std::size_t count = std::min(request.keys.size(), wire::find_keys_max);
  const Client client = client_of(request.tenant, Use::finding);
  TERRACE_ASSIGN(DaemonLeased leased,
                 client->lease(request.keys.last(count), /*brings_last=*/true));
  if (leased.chunks.empty()) return std::nullopt;
  Result<Manifest> manifest = manifest_of(leased.chunks.back());
  if (!manifest) return std::nullopt;
  return tiers::LeasedChunk{
      .manifest = *std::move(manifest),
      .lease = keep(client, std::move(leased.lease), leased.chunks, Use::finding)};
}

Result<tiers::ChunkLease> DaemonChunks::lease(const tiers::FindRequest& request) {
  const Client client = client_of(request.tenant, Use::publishing);
  TERRACE_ASSIGN(DaemonLeased leased, client->lease(first_of(request.keys)));
  return keep(client, std::move(leased.lease), leased.chunks, Use::publishing);
}

void DaemonChunks::touch(const tiers::FindRequest& request) {
  // Without an answer, others are used more: no more than that.
  static_cast<void>(client_of(request.tenant, Use::publishing)->lease(first_of(request.keys)));
}

Result<tiers::Published> DaemonChunks::publish(const tiers::PublishRequest& request,
                                               std::vector<tiers::PartBytes> parts,
                                               tiers::ChunkLease& lease) {
  if (lease.held() == nullptr) {
    lease = keep(client_of(request.tenant, Use::publishing), {}, {}, Use::publishing);
  }
  auto* const held = dynamic_cast<Held*>(lease.held());
  TERRACE_ASSERT(held != nullptr);
  std::vector<DaemonPartBytes> bytes;
  bytes.reserve(parts.size());
  for (const tiers::PartBytes& part : parts) {
    bytes.push_back({.name = part.name, .bytes = part.bytes});
  }
  held->parts().renew_if_due();
  TERRACE_ASSIGN(const tiers::Published published,
                 held->parts().client().publish(
                     {.root = request.root, .key = request.key, .tokens = request.tokens}, bytes,
                     &held->parts().lease()));
  const bool is_kept = published != tiers::Published::under_way && held->parts().is_live();
  if (is_kept && !lease.covers(request.key)) {
    held->add(request.key);
  }
  return published;
}

void DaemonChunks::note_mass(double mass) noexcept {
  const std::lock_guard lock(mutex_);
  for (const Tenant& tenant : tenants_) {
    if (tenant.finding != nullptr && tenant.finding->note_mass(mass)) return;
  }
}

tiers::ChunkCounters DaemonChunks::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void DaemonChunks::renew_leases() { leases_->renew(); }

}  // namespace terrace::node
