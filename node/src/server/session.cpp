#include "session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "session_jobs.hpp"

namespace terrace::node {
namespace {

constexpr std::uint32_t under_way_most = 16;
constexpr std::size_t unsent_bytes_most = std::size_t{1} << 20;
constexpr std::size_t requests_at_once = 32;  ///< before other clients have their turn
constexpr Duration hello_within = std::chrono::seconds{5};

}  // namespace

Session::Session(NodeState& node, std::uint64_t number, Descriptor socket, const Peer& peer)
    : node_(node),
      number_(number),
      connection_(std::move(socket)),
      peer_(peer),
      since_(node.clock.now()) {}

Session::~Session() {
  // First, so that a client which looks at its socket after it has read knows of the end.
  connection_.close();
  while (!leases_.empty()) end_lease(leases_.begin());
}

bool Session::may_receive() const noexcept {
  return !node_.is_draining && under_way_ < under_way_most &&
         connection_.unsent_bytes() < unsent_bytes_most;
}

std::string Session::name() const {
  return fmt::format("client pid={} uid={} tenant={}{}{}", peer_.process, peer_.user,
                     is_greeted_ ? tenant_.name() : "?", called_.empty() ? "" : " ", called_);
}

void Session::receive() {
  const Status received = connection_.receive();
  if (!received) close(std::string(received.error().message()));
}

void Session::send_more() {
  const Status sent = connection_.send_more();
  if (!sent) close(std::string(sent.error().message()));
}

bool Session::go_on() {
  for (std::size_t i = 0; i < requests_at_once; ++i) {
    if (!closing_.empty() || !may_receive()) return false;
    const Result<std::optional<IncomingFrame>> frame = connection_.take();
    if (!frame) close(std::string(frame.error().message()));
    if (!frame || !*frame) return false;
    handle(**frame);
  }
  return true;
}

void Session::handle(const IncomingFrame& frame) {
  ++node_.counters.requests;
  const auto kind = static_cast<wire::Kind>(frame.header.kind);
  if (is_greeted_ == (kind == wire::Kind::hello)) {
    return close(is_greeted_ ? "it said hello twice" : "its first message was no hello");
  }
  switch (kind) {
    case wire::Kind::hello:
      return handle_as(frame, &Session::hello);
    case wire::Kind::find:
      return handle_as(frame, &Session::find);
    case wire::Kind::read:
      return handle_as(frame, &Session::read);
    case wire::Kind::renew:
      return handle_as(frame, &Session::renew);
    case wire::Kind::release:
      return handle_as(frame, &Session::release);
    case wire::Kind::reserve:
      return handle_as(frame, &Session::reserve);
    case wire::Kind::commit:
      return handle_as(frame, &Session::commit);
    case wire::Kind::cancel:
      return handle_as(frame, &Session::cancel);
    case wire::Kind::pin:
      return handle_as(frame, &Session::pin);
    case wire::Kind::unpin:
      return handle_as(frame, &Session::unpin);
    case wire::Kind::stats:
      return handle_as(frame, &Session::stats);
    case wire::Kind::lease:
      return handle_as(frame, &Session::lease);
    case wire::Kind::let_go:
      return handle_as(frame, &Session::let_go);
    case wire::Kind::note_mass:
      return handle_as(frame, &Session::note_mass);
  }
  reply_error(kind, frame.header.request,
              make_error(Errc::unsupported, "no request has number {}", frame.header.kind));
}

Status Session::hello(std::uint64_t request, const wire::Hello& message) {
  if (message.magic != wire::magic || message.name.size() > wire::name_bytes_max ||
      message.salt.size() > wire::salt_bytes_max) {
    close("its hello is none");
    return fail(Errc::invalid_argument, "this is no hello, or a name or salt is too long");
  }
  if (message.version_first > wire::version_last || message.version_last < wire::version_first) {
    close(fmt::format("it speaks versions {} to {} of the protocol", message.version_first,
                      message.version_last));
    return fail(Errc::unsupported,
                "the daemon speaks versions {} to {} of the protocol, the client"
                " {} to {}",
                wire::version_first, wire::version_last, message.version_first,
                message.version_last);
  }
  TERRACE_ASSIGN(tenant_, node_.chunks.tenant_of(message.salt));
  is_greeted_ = true;
  called_ = shown(message.name);
  node_.log(name() + ": connected");
  reply(wire::Kind::hello, request,
        wire::HelloReply{.version = std::min(message.version_last, wire::version_last),
                         .instance = node_.instance,
                         .lease_ns = static_cast<std::uint64_t>(node_.options.lease.count()),
                         .leases_max = node_.options.client.leases,
                         .reservations_max = node_.options.client.reservations,
                         .client_bytes = node_.options.client.bytes});
  return {};
}

Status Session::stats(std::uint64_t request, const wire::Nothing& /*message*/) {
  reply(wire::Kind::stats, request, node_.stats());
  return {};
}

Status Session::note_mass(std::uint64_t request, const wire::MassSample& message) {
  if (message.millionths > wire::mass_millionths_max) {
    return fail(Errc::invalid_argument, "a share is at most {} millionths",
                wire::mass_millionths_max);
  }
  ++node_.counters.mass_samples;
  node_.counters.mass_millionths += message.millionths;
  reply(wire::Kind::note_mass, request, wire::Nothing{});
  return {};
}

void Session::reply_error(wire::Kind kind, std::uint64_t request, const Error& error) {
  ++node_.counters.failed;
  send({.bytes = wire::make_error_frame(kind, request, error)});
}

void Session::send(OutgoingFrame frame) {
  const Status sent = connection_.send(std::move(frame));
  if (!sent) close(std::string(sent.error().message()));
}

void Session::tell_retired(std::uint32_t segment) {
  if (segments_.erase(segment) > 0) retired_.push_back(segment);
}

void Session::expire(TimePoint now) {
  if (!is_greeted_ && now - since_ > hello_within) close("it said no hello");
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const auto each = lease++;
    if (each->second.until > now) continue;
    ++node_.counters.leases_expired;
    end_lease(each);
  }
  for (auto reservation = reservations_.begin(); reservation != reservations_.end();) {
    const auto each = reservation++;
    if (!each->second.is_committing && each->second.until <= now) end_reservation(each);
  }
}

}  // namespace terrace::node
