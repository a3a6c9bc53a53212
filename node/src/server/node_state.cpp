#include "node_state.hpp"

#include <utility>

#include "session.hpp"

namespace terrace::node {

Status PinnedChunks::pin(const Tenant& tenant, const tiers::ChunkKey& key, std::uint64_t bytes,
                         tiers::ChunkLease lease) {
  const auto known = pins_.find({tenant.digest, key});
  if (known != pins_.end()) {
    ++known->second.count;
    return {};
  }
  std::uint64_t& of_tenant = bytes_of_[tenant.digest];
  if (bytes > bytes_max_ || of_tenant > bytes_max_ - bytes) {
    return fail(Errc::out_of_memory, "daemon.pinned: the tenant has {} bytes pinned: unpin others",
                of_tenant);
  }
  of_tenant += bytes;
  pins_.emplace(Key{tenant.digest, key},
                Pin{.lease = std::move(lease), .bytes = bytes, .count = 1});
  return {};
}

Status PinnedChunks::unpin(const Tenant& tenant, const tiers::ChunkKey& key) {
  const auto known = pins_.find({tenant.digest, key});
  if (known == pins_.end()) return fail(Errc::invalid_argument, "the chunk is not pinned");
  if (--known->second.count > 0) return {};
  bytes_of_[tenant.digest] -= known->second.bytes;
  pins_.erase(known);
  return {};
}

std::uint64_t PinnedChunks::bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& [tenant, pinned] : bytes_of_) bytes += pinned;
  return bytes;
}

Session* NodeState::session(std::uint64_t number) {
  const auto found = sessions.find(number);
  return found == sessions.end() ? nullptr : found->second.get();
}

void NodeState::tell_retired() {
  for (const std::uint32_t segment : pool.take_retired()) {
    for (const auto& [number, session] : sessions) session->tell_retired(segment);
  }
}

namespace {

/// Appends counters to a reply.
class Counters {
 public:
  explicit Counters(wire::StatsReply& to) noexcept : to_(to) {}
  void operator()(std::string name, std::uint64_t value) {
    to_.counters.push_back({.name = std::move(name), .value = value});
  }

 private:
  wire::StatsReply& to_;
};

void add_chunks(Counters add, const ChunkService& chunks) {
  const tiers::ChunkCounters library = chunks.counters();
  const StoreUsage file = chunks.usage();
  const StoreHealth health = chunks.health();
  add("look_ups", library.look_ups.look_ups);
  for (std::size_t i = 0; i < tiers::look_up_outcome_count; ++i) {
    add("look_ups." + std::string(to_string(static_cast<tiers::LookUpOutcome>(i))),
        library.look_ups.ended[i]);
  }
  add("tokens.asked", library.tokens_asked);
  add("tokens.found", library.tokens_found);
  add("chunks", library.chunks.copies);
  add("chunks.bytes", library.chunks.resident);
  add("chunks.in_flight_bytes", library.chunks.in_flight);
  add("chunks.evicted", library.evicted);
  add("file.used_bytes", file.used_bytes);
  add("file.free_bytes", file.free_bytes);
  add("file.corrupt", health.corrupt);
  add("file.lost", health.lost);
  add("file.bad_places", health.bad_places);
  add("file.writes", health.writes ? 1 : 0);
  add("tenants", chunks.tenants());
}

void add_servers(Counters add, const tiers::RemoteCounters& remote) {
  add("remote.written", remote.written);
  add("remote.left_out", remote.left_out);
  add("remote.read", remote.read);
  add("remote.dropped", remote.dropped);
}

void add_memory(Counters add, const PoolCounters& memory) {
  add("memory.bytes", memory.bytes);
  add("memory.parts", memory.parts);
  add("memory.part_bytes", memory.part_bytes);
  add("memory.held_bytes", memory.held_bytes);
  add("memory.evicted", memory.evicted);
  add("memory.segments_retired", memory.segments_retired);
}

void add_requests(Counters add, const ServerCounters& counters) {
  add("chunks.published", counters.published);
  add("parts.read", counters.parts_read);
  add("parts.from_memory", counters.parts_from_memory);
  add("parts.bytes", counters.bytes_read);
  add("clients.connected", counters.connections);
  add("clients.refused", counters.refused);
  add("requests", counters.requests);
  add("requests.failed", counters.failed);
  add("leases.expired", counters.leases_expired);
  add("mass.samples", counters.mass_samples);
  add("mass.millionths", counters.mass_millionths);
}

}  // namespace

wire::StatsReply NodeState::stats() const {
  wire::StatsReply reply;
  Counters add(reply);
  add_chunks(add, chunks);
  add_servers(add, chunks.remote_counters());
  add_memory(add, pool.counters());
  add_requests(add, counters);
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  for (const auto& [number, session] : sessions) {
    leases += session->leases();
    reservations += session->reservations();
  }
  add("chunks.pinned_bytes", pins.bytes());
  add("clients", sessions.size());
  add("leases", leases);
  add("reservations", reservations);
  return reply;
}

}  // namespace terrace::node
