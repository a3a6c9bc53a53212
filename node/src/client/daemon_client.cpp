#include "terrace/node/daemon_client.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client_link.hpp"
#include "lease_state.hpp"

namespace terrace::node {
namespace {

constexpr std::size_t socket_path_bytes_max = 107;

/// Gives chunks of a run the lists of parts that they have. Errors: corrupt: a list that is not
/// there, or more chunks than were asked for.
template <typename Reply>
Result<std::vector<DaemonChunk>> chunks_of(const Reply& reply,
                                           std::span<const tiers::ChunkKey> keys) {
  std::vector<std::shared_ptr<const std::vector<DaemonPart>>> lists;
  for (const wire::PartList& list : reply.lists) {
    auto parts = std::make_shared<std::vector<DaemonPart>>();
    for (const wire::SizedPart& part : list.parts) {
      parts->push_back({.name = part.name, .bytes = part.bytes});
    }
    lists.push_back(std::move(parts));
  }
  std::vector<DaemonChunk> chunks;
  for (const wire::FoundChunk& chunk : reply.chunks) {
    if (chunk.list >= lists.size() || chunks.size() == keys.size()) {
      return fail(Errc::corrupt, "the daemon's reply to a look-up contradicts itself");
    }
    chunks.push_back(
        {.key = keys[chunks.size()], .tokens = chunk.tokens, .parts = lists[chunk.list]});
  }
  return chunks;
}

/// Returns the bytes of a part in a segment. Errors: that of the part; corrupt: it lies outside.
Result<std::span<const std::byte>> bytes_of(const wire::PlacedPart& part, const Mapping* segment) {
  if (part.status != 0) {
    const Errc code = wire::code_of(part.status);
    return fail(code,
                "the daemon could not read a part of a stored prefix ({}): its tokens have "
                "to be computed again",
                to_string(code));
  }
  const auto all = segment == nullptr ? std::span<std::byte>{} : segment->bytes();
  if (part.offset > all.size() || part.bytes > all.size() - part.offset) {
    return fail(Errc::corrupt, "the daemon names a place that is in no segment");
  }
  return std::span<const std::byte>(all.subspan(part.offset, part.bytes));
}

}  // namespace

DaemonClient::DaemonClient(const DaemonClientOptions& options)
    : link_(std::make_shared<ClientLink>(options)) {}
DaemonClient::~DaemonClient() = default;

Result<std::unique_ptr<DaemonClient>> DaemonClient::create(const DaemonClientOptions& options) {
  const std::size_t path = options.socket.size();
  if (path == 0 || path > socket_path_bytes_max || options.name.size() > wire::name_bytes_max ||
      options.salt.secret().size() > wire::salt_bytes_max) {
    return fail(Errc::invalid_argument,
                "a socket's path has 1 to {} bytes, a client's name at most {}, a salt at most {}",
                socket_path_bytes_max, wire::name_bytes_max, wire::salt_bytes_max);
  }
  return std::unique_ptr<DaemonClient>(new DaemonClient(options));
}

bool DaemonClient::note_mass(double mass) noexcept { return link_->note_mass(mass); }

Status DaemonClient::connect() { return Turn(*link_).connect(); }

DaemonLookUp DaemonClient::find(const DaemonFind& request) {
  DaemonLookUp look_up;
  Turn turn(*link_);
  const TimePoint asked = link_->now();
  const auto answer = [&]() -> Result<wire::FindReply> {
    TERRACE_TRY(turn.connect());
    return turn.call<wire::FindReply>(
        wire::Kind::find, wire::Find{.root = request.root,
                                     .tokens = request.tokens,
                                     .keys = {request.keys.begin(), request.keys.end()}});
  }();
  if (!answer) {
    look_up.error = answer.error();
    return look_up;
  }
  Result<std::vector<DaemonChunk>> chunks = chunks_of(*answer, request.keys);
  if (!chunks) {
    link_->disconnect(chunks.error());
    look_up.error = chunks.error();
    return look_up;
  }
  look_up.outcome = answer->outcome;
  look_up.run = *std::move(chunks);
  if (answer->lease != wire::no_lease) {
    look_up.lease.state_ =
        std::make_shared<DaemonLease::State>(link_, answer->lease, asked + link_->lease_time());
  }
  return look_up;
}

Result<DaemonLeased> DaemonClient::lease(std::span<const tiers::ChunkKey> keys, bool brings_last) {
  Turn turn(*link_);
  TERRACE_TRY(turn.connect());
  const TimePoint asked = link_->now();
  const wire::Lease request{.keys = {keys.begin(), keys.end()},
                            .brings_last = static_cast<std::uint8_t>(brings_last ? 1 : 0)};
  TERRACE_ASSIGN(const auto reply, turn.call<wire::LeaseReply>(wire::Kind::lease, request));
  std::vector<tiers::ChunkKey> there;
  for (const std::uint32_t number : reply.numbers) {
    if (number < keys.size()) there.push_back(keys[number]);
  }
  Result<std::vector<DaemonChunk>> chunks = chunks_of(reply, there);
  if (!chunks || chunks->size() != reply.numbers.size()) {
    link_->disconnect(make_error(Errc::corrupt, "the daemon's reply contradicts itself"));
    return fail(Errc::not_ready, "the daemon's reply contradicts itself");
  }
  DaemonLeased leased{.chunks = *std::move(chunks)};
  if (reply.lease != wire::no_lease) {
    leased.lease.state_ =
        std::make_shared<DaemonLease::State>(link_, reply.lease, asked + link_->lease_time());
  }
  return leased;
}

Result<DaemonClient::PartsRead> DaemonClient::read(const DaemonLease& lease,
                                                   std::span<const DaemonPartRequest> parts) {
  Turn turn(*link_);
  Segments segments;
  TERRACE_ASSIGN(PartsRead read, read_now(turn, lease, parts, segments));
  const std::lock_guard lock(lease.state_->mutex);
  lease.state_->segments.merge(segments);
  return read;
}

Result<DaemonClient::PartsRead> DaemonClient::read_now(Turn& turn, const DaemonLease& lease,
                                                       std::span<const DaemonPartRequest> parts,
                                                       Segments& segments) {
  wire::Read message;
  for (const DaemonPartRequest& part : parts) {
    message.parts.push_back({.chunk = part.chunk, .name = part.name});
  }
  TERRACE_TRY(turn.connect());
  if (lease.state_ == nullptr || lease.state_->epoch != link_->epoch()) {
    return fail(Errc::not_ready, "the lease has ended: look up again");
  }
  message.lease = lease.state_->number;
  const TimePoint asked = link_->now();
  TERRACE_ASSIGN(const auto reply, turn.call<wire::ReadReply>(wire::Kind::read, message));
  TERRACE_TRY(link_->take_segments(reply));
  lease.state_->until.store((asked + link_->lease_time()).time_since_epoch().count());
  if (reply.parts.size() != parts.size()) {
    return fail(Errc::not_ready, "the daemon answers {} parts of {}", reply.parts.size(),
                parts.size());
  }
  PartsRead read;
  for (const wire::PlacedPart& part : reply.parts) {
    const std::shared_ptr<const Mapping> segment = link_->segment(part.segment);
    read.push_back(bytes_of(part, segment.get()));
    if (read.back()) segments.try_emplace(part.segment, segment);
  }
  return read;
}

Status DaemonClient::renew(const DaemonLease& lease) {
  Turn turn(*link_);
  TERRACE_TRY(turn.connect());
  if (lease.state_ == nullptr || lease.state_->epoch != link_->epoch()) {
    return fail(Errc::not_ready, "the lease has ended: look up again");
  }
  const TimePoint asked = link_->now();
  TERRACE_TRY(turn.call<wire::Nothing>(wire::Kind::renew, wire::LeaseNumber{lease.state_->number}));
  lease.state_->until.store((asked + link_->lease_time()).time_since_epoch().count());
  return {};
}

Status DaemonClient::pin(const tiers::ChunkKey& key) {
  Turn turn(*link_);
  TERRACE_TRY(turn.connect());
  TERRACE_TRY(turn.call<wire::Nothing>(wire::Kind::pin, wire::KeyMessage{key}));
  return {};
}

Status DaemonClient::unpin(const tiers::ChunkKey& key) {
  Turn turn(*link_);
  TERRACE_TRY(turn.connect());
  TERRACE_TRY(turn.call<wire::Nothing>(wire::Kind::unpin, wire::KeyMessage{key}));
  return {};
}

Result<std::vector<DaemonCounter>> DaemonClient::stats() {
  Turn turn(*link_);
  TERRACE_TRY(turn.connect());
  TERRACE_ASSIGN(const auto reply, turn.call<wire::StatsReply>(wire::Kind::stats, wire::Nothing{}));
  std::vector<DaemonCounter> counters;
  counters.reserve(reply.counters.size());
  for (const wire::Counter& each : reply.counters) {
    counters.push_back({.name = each.name, .value = each.value});
  }
  return counters;
}

}  // namespace terrace::node
