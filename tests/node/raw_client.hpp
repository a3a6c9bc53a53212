// A client that says whatever a test has it say.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "protocol/frames.hpp"
#include "sockets/socket_io.hpp"
#include "terrace/core/function_ref.hpp"

namespace terrace::node {

class RawClient {
 public:
  explicit RawClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    is_connected_ =
        ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  [[nodiscard]] bool is_connected() const noexcept { return is_connected_; }

  /// Sends what the socket takes; returns whether it took all.
  bool send(std::vector<std::byte> bytes) {
    OutgoingFrame frame{.bytes = std::move(bytes)};
    return send_some(socket_, frame) && frame.sent == frame.bytes.size();
  }
  template <typename Message>
  bool send(wire::Kind kind, std::uint64_t request, const Message& message) {
    return send(
        wire::make_frame({.kind = static_cast<std::uint8_t>(kind), .request = request}, message));
  }
  bool greet(std::string salt = {}) {
    return send(wire::Kind::hello, 1, wire::Hello{.salt = std::move(salt)}) && receive();
  }

  struct Message {
    wire::Header header;
    std::vector<std::byte> body;
  };
  /// Waits for a message; nothing once the daemon has closed the connection.
  std::optional<Message> receive() {
    for (;;) {
      if (auto message = take()) return message;
      pollfd event{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      ::poll(&event, 1, -1);
      if (!receive_bytes()) return std::nullopt;
    }
  }
  /// Takes what has come; returns whether the connection is still there.
  bool drain(FunctionRef<void(const Message&)> heard) {
    while (receive_bytes()) {
      while (const auto message = take()) heard(*message);
      descriptors_.clear();
      pollfd event{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&event, 1, 0) == 0) return true;
    }
    return false;
  }
  /// Whether the daemon closes the connection, after whatever it says before.
  bool is_closed() {
    while (receive()) {
    }
    return true;
  }

 private:
  bool receive_bytes() {
    const auto received = receive_some(socket_, 65536, received_, &descriptors_);
    return received && *received != Received::end;
  }
  std::optional<Message> take() {
    if (received_.size() < wire::header_bytes) return std::nullopt;
    const auto header = wire::read_header(std::span(received_).first<wire::header_bytes>());
    if (!header) {
      ADD_FAILURE() << "the daemon sent no header";
      return std::nullopt;
    }
    const std::size_t end = wire::header_bytes + header->body_bytes;
    if (received_.size() < end) return std::nullopt;
    const auto begin = received_.begin();
    Message message{*header, {begin + wire::header_bytes, begin + static_cast<long>(end)}};
    received_.erase(begin, begin + static_cast<long>(end));
    return message;
  }

  Descriptor socket_;
  bool is_connected_ = false;
  std::vector<std::byte> received_;
  std::vector<Descriptor> descriptors_;
};

}  // namespace terrace::node
