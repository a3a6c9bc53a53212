// Look-ups, leases and pins of a session.
#include <algorithm>
#include <utility>

#include "session_jobs.hpp"

namespace terrace::node {
namespace {

/// Look-ups of more keys take too long for the thread that all clients wait for.
constexpr std::size_t keys_in_memory = 128;

/// In a reply: its number among the keys, its tokens, its list.
constexpr std::size_t bytes_of_a_chunk = 12;

std::vector<wire::SizedPart> parts_of(const tiers::Manifest& manifest) {
  std::vector<wire::SizedPart> parts;
  for (const tiers::Part& part : manifest.parts()) {
    parts.push_back({.name = part.name, .bytes = part.bytes});
  }
  return parts;
}

/// The daemon's memory for a run: a client has many leases, each with a copy.
std::uint64_t bytes_in_memory(std::span<const tiers::Manifest> run) {
  std::uint64_t bytes = 0;
  for (const tiers::Manifest& chunk : run) bytes += ChunkService::bytes_in_memory(chunk);
  return bytes;
}

/// Errors: invalid_argument: more keys than a message may have, or one twice: no prefix has that.
Status check_keys(std::vector<tiers::ChunkKey> keys) {
  if (keys.size() > wire::find_keys_max) {
    return fail(Errc::invalid_argument, "{} chunks are above {}: ask in pieces", keys.size(),
                wire::find_keys_max);
  }
  std::ranges::sort(keys);
  if (std::ranges::adjacent_find(keys) == keys.end()) return {};
  return fail(Errc::invalid_argument, "a chunk is named twice");
}

std::size_t bytes_of(const wire::PartList& list) { return 4 + 20 * list.parts.size(); }

/// Describes chunks of a run, as many as one message has room for.
template <typename Reply>
void describe(std::span<const tiers::Manifest> run, Reply& reply) {
  constexpr std::size_t room = wire::body_bytes_max - 64;
  std::size_t bytes = 0;
  for (const tiers::Manifest& manifest : run) {
    wire::PartList list{.parts = parts_of(manifest)};
    // Chunks of one model have the same list, but for indexes: the last ones are those to compare.
    const auto same =
        std::find_if(reply.lists.rbegin(), reply.lists.rend(),
                     [&](const wire::PartList& each) { return each.parts == list.parts; });
    const bool is_new = same == reply.lists.rend();
    const auto number =
        is_new ? reply.lists.size() : static_cast<std::size_t>(reply.lists.rend() - same) - 1;
    bytes += bytes_of_a_chunk + (is_new ? bytes_of(list) : 0);
    if (bytes > room) break;
    if (is_new) reply.lists.push_back(std::move(list));
    reply.chunks.push_back(
        {.tokens = manifest.tokens(), .list = static_cast<std::uint32_t>(number)});
  }
}

}  // namespace

Status Session::find(std::uint64_t request, const wire::Find& message) {
  TERRACE_TRY(check_keys(message.keys));
  TERRACE_TRY(check_room_for_a_lease());
  if (message.keys.size() <= keys_in_memory) {
    TERRACE_ASSIGN(std::optional<tiers::LookUp> known,
                   node_.chunks.find_in_memory(tenant_, message));
    if (known) return answer_find(request, *std::move(known)), Status{};
  }
  ++finds_under_way_;
  using Outcome = Result<tiers::LookUp>;
  start<Outcome>(
      [chunks = &node_.chunks, tenant = tenant_, message] { return chunks->find(tenant, message); },
      [request](Session& session, Outcome& found) {
        --session.finds_under_way_;
        if (!found) return session.reply_error(wire::Kind::find, request, found.error());
        session.answer_find(request, *std::move(found));
      });
  return {};
}

void Session::answer_find(std::uint64_t request, tiers::LookUp look_up) {
  wire::FindReply answer{.outcome = look_up.outcome};
  describe(look_up.run, answer);
  // A chunk that the reply has no room for is not leased.
  look_up.run.erase(look_up.run.begin() + static_cast<std::ptrdiff_t>(answer.chunks.size()),
                    look_up.run.end());
  const Result<std::uint64_t> lease = lease_run(std::move(look_up));
  if (!lease) return reply_error(wire::Kind::find, request, lease.error());
  answer.lease = *lease;
  reply(wire::Kind::find, request, answer);
}

Status Session::check_room_for_a_lease() const {
  if (leases_.size() + finds_under_way_ < node_.options.client.leases) return {};
  return fail(Errc::out_of_memory, "the client has {} leases: release one",
              node_.options.client.leases);
}

Result<std::uint64_t> Session::lease_run(tiers::LookUp look_up) {
  if (look_up.run.empty()) return wire::no_lease;
  ClientLease lease{.bytes = bytes_in_memory(look_up.run)};
  if (held_bytes_ + lease.bytes > node_.options.client.bytes) {
    return fail(Errc::out_of_memory, "the client's leases hold {} bytes: release one", held_bytes_);
  }
  held_bytes_ += lease.bytes;
  lease.found = std::make_shared<const tiers::LookUp>(std::move(look_up));
  return add_lease(std::move(lease));
}

Status Session::lease(std::uint64_t request, const wire::Lease& message) {
  TERRACE_TRY(check_keys(message.keys));
  TERRACE_TRY(check_room_for_a_lease());
  ++finds_under_way_;
  using Outcome = Result<ChunkService::LeasedChunks>;
  start<Outcome>(
      [chunks = &node_.chunks, tenant = tenant_, message, most = node_.options.client.bytes] {
        return chunks->lease_all(tenant, message, most);
      },
      [request](Session& session, Outcome& leased) {
        --session.finds_under_way_;
        if (!leased) return session.reply_error(wire::Kind::lease, request, leased.error());
        wire::LeaseReply answer{.numbers = std::move(leased->numbers)};
        std::vector<tiers::Manifest>& run = leased->look_up.run;
        describe(run, answer);
        run.erase(run.begin() + static_cast<std::ptrdiff_t>(answer.chunks.size()), run.end());
        answer.numbers.resize(run.size());
        const Result<std::uint64_t> lease = session.lease_run(std::move(leased->look_up));
        if (!lease) return session.reply_error(wire::Kind::lease, request, lease.error());
        answer.lease = *lease;
        session.reply(wire::Kind::lease, request, answer);
      });
  return {};
}

Status Session::let_go(std::uint64_t request, const wire::LeaseNumber& message) {
  TERRACE_ASSIGN(ClientLease* const lease, lease_of(message.lease));
  let_go(*lease);
  reply(wire::Kind::let_go, request, wire::Nothing{});
  return {};
}

Result<ClientLease*> Session::lease_of(std::uint64_t number) {
  const auto found = leases_.find(number);
  if (found == leases_.end()) {
    return fail(Errc::not_ready, "the lease has ended: look up again");
  }
  found->second.until = node_.clock.now() + node_.options.lease;
  return &found->second;
}

std::uint64_t Session::add_lease(ClientLease lease) {
  lease.until = node_.clock.now() + node_.options.lease;
  const std::uint64_t number = node_.next_number++;
  leases_.emplace(number, std::move(lease));
  return number;
}

std::uint64_t Session::keep(std::uint64_t lease, tiers::ChunkLease chunk) {
  if (lease == wire::no_lease || chunk.chunks().empty()) return wire::no_lease;
  if (lease == wire::new_lease) {
    if (leases_.size() >= node_.options.client.leases) return wire::no_lease;
    lease = add_lease({});
  }
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return wire::no_lease;
  found->second.kept.push_back(std::move(chunk));
  return lease;
}

void Session::let_go(ClientLease& lease) {
  for (PooledPart* const part : lease.parts) {
    held_bytes_ -= part->bytes;
    node_.pool.let_go(*part);
  }
  lease.parts.clear();
}

void Session::end_lease(std::map<std::uint64_t, ClientLease>::iterator lease) {
  let_go(lease->second);
  held_bytes_ -= lease->second.bytes;
  leases_.erase(lease);
}

Status Session::renew(std::uint64_t request, const wire::LeaseNumber& message) {
  TERRACE_TRY(lease_of(message.lease));
  reply(wire::Kind::renew, request, wire::Nothing{});
  return {};
}

Status Session::release(std::uint64_t request, const wire::LeaseNumber& message) {
  const auto lease = leases_.find(message.lease);
  if (lease != leases_.end()) end_lease(lease);
  reply(wire::Kind::release, request, wire::Nothing{});
  return {};
}

Status Session::pin(std::uint64_t request, const wire::KeyMessage& message) {
  TERRACE_ASSIGN(const tiers::ChunkKey key, ChunkService::key_of(tenant_, message.key));
  struct Leased {
    tiers::ChunkLease lease;
    Result<std::uint64_t> bytes;
  };
  start<Leased>(
      [chunks = &node_.chunks, tenant = tenant_, key]() -> Leased {
        Leased leased{.lease = chunks->lease(tenant, key), .bytes = 0};
        if (leased.lease.chunks().empty()) {
          leased.bytes = fail(Errc::invalid_argument, "there is no such chunk to pin");
        } else {
          leased.bytes = chunks->bytes_of(key);
        }
        return leased;
      },
      [request, key](Session& session, Leased& leased) {
        const Status pinned = leased.bytes
                                  ? session.node_.pins.pin(session.tenant_, key, *leased.bytes,
                                                           std::move(leased.lease))
                                  : tl::unexpected(leased.bytes.error());
        if (!pinned) return session.reply_error(wire::Kind::pin, request, pinned.error());
        session.reply(wire::Kind::pin, request, wire::Nothing{});
      });
  return {};
}

Status Session::unpin(std::uint64_t request, const wire::KeyMessage& message) {
  TERRACE_ASSIGN(const tiers::ChunkKey key, ChunkService::key_of(tenant_, message.key));
  TERRACE_TRY(node_.pins.unpin(tenant_, key));
  reply(wire::Kind::unpin, request, wire::Nothing{});
  return {};
}

}  // namespace terrace::node
