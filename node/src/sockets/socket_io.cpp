#include "socket_io.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace terrace::node {
namespace {

constexpr std::size_t descriptors_at_once = 64;

struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(descriptors_at_once * sizeof(int))> bytes{};
};

tl::unexpected<Error> broken(const char* what) {
  const int number = errno;
  Error error = make_error(Errc::io_error, "{}: {}", what, std::strerror(number));
  error.native = number;
  return tl::unexpected(error);
}

bool is_temporary() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void attach(msghdr& message, Control& control, const OutgoingFrame& frame) {
  const std::size_t bytes = frame.descriptors.size() * sizeof(int);
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(bytes);
  for (std::size_t i = 0; i < frame.descriptors.size(); ++i) {
    const int number = frame.descriptors[i]->get();
    std::memcpy(CMSG_DATA(head) + i * sizeof number, &number, sizeof number);
  }
}

void take_descriptors(msghdr& message, std::vector<Descriptor>& descriptors) {
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof number, sizeof number);
      descriptors.emplace_back(number);
    }
  }
}

}  // namespace

Status send_some(const Descriptor& socket, OutgoingFrame& frame) {
  while (frame.sent < frame.bytes.size()) {
    iovec part{.iov_base = frame.bytes.data() + frame.sent,
               .iov_len = frame.bytes.size() - frame.sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    Control control;
    if (frame.sent == 0 && !frame.descriptors.empty()) attach(message, control, frame);
    const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (is_temporary()) return {};
      return broken("sending");
    }
    frame.sent += static_cast<std::size_t>(sent);
  }
  return {};
}

Result<Received> receive_some(const Descriptor& socket, std::size_t bytes_max,
                              std::vector<std::byte>& to, std::vector<Descriptor>* descriptors) {
  const std::size_t before = to.size();
  to.resize(before + bytes_max);
  iovec part{.iov_base = to.data() + before, .iov_len = bytes_max};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control;
  if (descriptors != nullptr) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
  }
  const ssize_t received = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  to.resize(before + static_cast<std::size_t>(received > 0 ? received : 0));
  if (received == 0) return Received::end;
  if (received < 0) {
    if (is_temporary()) return Received::nothing;
    return broken("receiving");
  }
  if (descriptors != nullptr) take_descriptors(message, *descriptors);
  return Received::bytes;
}

Result<Peer> peer_of(const Descriptor& socket) {
  ucred found{};
  socklen_t size = sizeof found;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &found, &size) != 0) {
    return broken("asking who is at the other end");
  }
  return Peer{.process = found.pid, .user = found.uid};
}

}  // namespace terrace::node
