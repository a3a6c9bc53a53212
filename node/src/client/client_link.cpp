#include "client_link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace terrace::node {
namespace {

constexpr std::size_t received_at_once = std::size_t{64} << 10;

/// The errors of a connection as its caller sees them: the daemon is away.
Error away(const Error& why) {
  return make_error(Errc::not_ready, "the daemon is away: {}", why.message());
}

}  // namespace

ClientLink::ClientLink(const DaemonClientOptions& options)
    : options_(options), clock_(options.clock != nullptr ? *options.clock : steady_) {}

bool ClientLink::begin(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  // Longer waits would not fit into a point of time.
  const Duration patience = std::min<Duration>(deadline.left(), std::chrono::hours{24});
  if (!free_.wait_for(lock, patience, [&] { return !is_calling_; })) return false;
  is_calling_ = true;
  return true;
}

void ClientLink::end() noexcept {
  send_notices();
  {
    const std::lock_guard lock(mutex_);
    is_calling_ = false;
  }
  free_.notify_one();
}

Status ClientLink::connect(const Deadline& deadline) {
  if (socket_ != nullptr) {
    absorb_all();
    if (socket_ != nullptr && (late_.empty() || clock_.now() >= next_try_)) return {};
    if (socket_ != nullptr) return fail(Errc::not_ready, "the daemon does not answer");
  }
  if (last_failure_ && clock_.now() < next_try_) return tl::unexpected(*last_failure_);
  Status connected = open_socket();
  if (connected) connected = greet(deadline);
  if (connected) {
    const std::lock_guard lock(mutex_);
    visible_socket_ = socket_;
    epoch_.store(++epochs_);
    pause_ = {};
    last_failure_.reset();
    return {};
  }
  disconnect(connected.error());
  return tl::unexpected(*last_failure_);
}

Status ClientLink::open_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, options_.socket.data(), options_.socket.size());
  if (!socket.is_open() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail(Errc::not_ready, "{}: {}", options_.socket, std::strerror(errno));
  }
  TERRACE_ASSIGN(const Peer peer, peer_of(socket));
  const bool is_trusted = options_.daemon_user ? peer.user == *options_.daemon_user
                                               : peer.user == ::geteuid() || peer.user == 0;
  if (!is_trusted) {
    return fail(Errc::unsupported, "{} is of user {}, and no daemon that is trusted",
                options_.socket, peer.user);
  }
  socket_ = std::make_shared<const Descriptor>(std::move(socket));
  return {};
}

Status ClientLink::greet(const Deadline& deadline) {
  TERRACE_ASSIGN(const auto greeting,
                 call<wire::HelloReply>(
                     wire::Kind::hello,
                     wire::Hello{.name = options_.name, .salt = options_.salt.secret()}, deadline));
  lease_time_ = Duration(static_cast<Duration::rep>(
      std::min<std::uint64_t>(greeting.lease_ns, Duration::max().count())));
  return {};
}

void ClientLink::begin_pause() noexcept {
  pause_ = std::clamp(pause_ * 2, options_.pause_first, options_.pause_longest);
  next_try_ = clock_.now() + pause_;
}

void ClientLink::disconnect(const Error& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    visible_socket_ = nullptr;
    epoch_.store(0);
    notices_.clear();
  }
  socket_ = nullptr;
  unsent_.reset();
  received_.clear();
  descriptors_.clear();
  segments_.clear();
  late_.clear();
  last_failure_ = why.code == Errc::unsupported ? why : away(why);
  begin_pause();
}

Result<Reply> ClientLink::exchange(OutgoingFrame frame, const wire::Header& header,
                                   const Deadline& deadline) {
  if (frame.bytes.size() > wire::header_bytes + wire::body_bytes_max) {
    return fail(Errc::invalid_argument, "a request of {} bytes is too long: ask for less at once",
                frame.bytes.size());
  }
  const Status sent = send(std::move(frame), deadline);
  if (!sent) {
    if (socket_ != nullptr) disconnect(sent.error());
    return tl::unexpected(*last_failure_);
  }
  TERRACE_ASSIGN(Reply reply, wait_for_reply(header.request, deadline));
  if (reply.header.kind != (header.kind | wire::reply_bit)) {
    disconnect(make_error(Errc::corrupt, "a reply of another kind"));
    return tl::unexpected(*last_failure_);
  }
  if (reply.header.status != 0) return tl::unexpected(wire::read_error(reply.header, reply.body));
  return reply;
}

Result<Reply> ClientLink::wait_for_reply(std::uint64_t request, const Deadline& deadline) {
  for (;;) {
    Result<std::optional<Reply>> reply = take_reply();
    if (!reply) {
      disconnect(reply.error());
      return tl::unexpected(*last_failure_);
    }
    if (*reply && (*reply)->header.request == request) {
      pause_ = {};
      return **std::move(reply);
    }
    if (*reply) {
      absorb(**reply);
      if (socket_ == nullptr) return tl::unexpected(*last_failure_);
      continue;
    }
    const Status waited = wait_for(POLLIN, deadline);
    if (waited) continue;
    late_.insert(request);
    begin_pause();
    return tl::unexpected(waited.error());
  }
}

Status ClientLink::wait_for(short events, const Deadline& deadline) const {
  pollfd waiting{.fd = socket_->get(), .events = events, .revents = 0};
  for (;;) {
    // Rounded up: a wait of zero would end before the deadline.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return {};
    if (deadline.left() == Duration::zero()) {
      return fail(Errc::not_ready, "the daemon has not answered in time");
    }
  }
}

Status ClientLink::send(OutgoingFrame frame, const Deadline& deadline) {
  for (;;) {
    OutgoingFrame& next = unsent_ ? *unsent_ : frame;
    TERRACE_TRY(send_some(*socket_, next));
    if (next.sent < next.bytes.size()) {
      // Half a message is none: a connection that does not take it in time is of no use.
      TERRACE_TRY(wait_for(POLLOUT, deadline));
    } else if (unsent_) {
      unsent_.reset();
    } else {
      return {};
    }
  }
}

Result<std::optional<Reply>> ClientLink::take_reply() {
  for (;;) {
    if (received_.size() >= wire::header_bytes) {
      const auto bytes = std::span<const std::byte>(received_);
      TERRACE_ASSIGN(const wire::Header header,
                     wire::read_header(bytes.first<wire::header_bytes>()));
      const std::size_t end = wire::header_bytes + header.body_bytes;
      if (bytes.size() >= end) {
        const auto body = bytes.subspan(wire::header_bytes, header.body_bytes);
        Reply reply{.header = header, .body = {body.begin(), body.end()}};
        received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(end));
        return reply;
      }
    }
    TERRACE_ASSIGN(const Received state,
                   receive_some(*socket_, received_at_once, received_, &descriptors_));
    if (state == Received::nothing) return std::nullopt;
    if (state == Received::end)
      return fail(Errc::cancelled, "the daemon has closed the connection");
  }
}

bool ClientLink::connection_is(std::uint64_t epoch) const noexcept {
  std::shared_ptr<const Descriptor> socket;
  {
    const std::lock_guard lock(mutex_);
    if (epoch_.load() != epoch) return false;
    socket = visible_socket_;
  }
  pollfd state{.fd = socket->get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&state, 1, 0) >= 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

}  // namespace terrace::node
