// Publishing by a client: reserve, write, commit.
#include <cstring>
#include <utility>

#include "client_link.hpp"
#include "lease_state.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {
namespace {

wire::Reserve reserve_message(const DaemonPublish& chunk, std::span<const DaemonPartBytes> parts) {
  wire::Reserve message{.root = chunk.root, .key = chunk.key, .tokens = chunk.tokens};
  for (const DaemonPartBytes& part : parts) {
    message.parts.push_back({.name = part.name, .bytes = part.bytes.size()});
  }
  return message;
}

/// Writes parts into the memory of a reservation.
Status write_parts(const Descriptor& memory, const wire::ReserveReply& reserved,
                   const wire::Reserve& message, std::span<const DaemonPartBytes> parts) {
  const auto places = wire::lay_out(message.parts);
  if (!places || places->back() != reserved.bytes) {
    return fail(Errc::corrupt, "the daemon reserved {} bytes, and not what was asked for",
                reserved.bytes);
  }
  TERRACE_ASSIGN(const Mapping mapping, Mapping::of(memory, reserved.bytes, true));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::memcpy(mapping.bytes().data() + (*places)[i], parts[i].bytes.data(),
                parts[i].bytes.size());
  }
  return {};
}

}  // namespace

Result<tiers::Published> DaemonClient::publish(const DaemonPublish& chunk,
                                               std::span<const DaemonPartBytes> parts,
                                               DaemonLease* lease) {
  wire::Reserve message = reserve_message(chunk, parts);
  Turn turn(*link_);
  TERRACE_TRY(turn.connect());
  const TimePoint asked = link_->now();
  const auto keep = [&](std::uint64_t number) {
    if (lease == nullptr) return;
    if (lease->is_empty() && number != wire::no_lease) {
      lease->state_ =
          std::make_shared<DaemonLease::State>(link_, number, asked + link_->lease_time());
    } else if (number == wire::no_lease && !lease->is_empty()) {
      lease->state_->until.store(0);  // the daemon had ended it: nothing keeps the chunk
    }
  };
  if (lease != nullptr) {
    if (!lease->is_empty() && lease->state_->epoch != link_->epoch()) {
      return fail(Errc::not_ready, "the lease has ended: look up again");
    }
    message.lease = lease->is_empty() ? wire::new_lease : lease->state_->number;
  }
  TERRACE_ASSIGN(const auto reserved, turn.call<wire::ReserveReply>(wire::Kind::reserve, message));
  if (reserved.state != tiers::Published::written) {
    keep(reserved.lease);
    return reserved.state;
  }
  TERRACE_ASSIGN(const std::vector<Descriptor> memory, link_->take_descriptors(1));
  const Status written = write_parts(memory.front(), reserved, message, parts);
  if (!written) {
    link_->cancel(reserved.reservation);
    return tl::unexpected(written.error());
  }
  TERRACE_ASSIGN(const auto committed,
                 turn.call<wire::CommitReply>(wire::Kind::commit,
                                              wire::ReservationNumber{reserved.reservation}));
  keep(committed.lease);
  return committed.state;
}

}  // namespace terrace::node
