// A client's socket at the daemon's end: whole messages in and out, within bounds.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "protocol/frames.hpp"
#include "sockets/socket_io.hpp"

namespace terrace::node {

struct IncomingFrame {
  wire::Header header = {};
  std::vector<std::byte> body = {};
};

/// Threads  one at a time
class Connection {
 public:
  explicit Connection(Descriptor socket) noexcept : socket_(std::move(socket)) {}

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  void close() noexcept { socket_ = {}; }

  /// Reads some of what has come: once, so that other clients have their turn. Descriptors that a
  /// client sends are closed. Errors: io_error; cancelled: the client has closed its end.
  [[nodiscard]] Status receive();
  /// Takes the next message, if all of it has come. Errors: those of wire::read_header.
  [[nodiscard]] Result<std::optional<IncomingFrame>> take();

  /// Sends a message, or keeps it until the socket takes it. Errors: as send_some().
  [[nodiscard]] Status send(OutgoingFrame frame);
  [[nodiscard]] Status send_more();
  [[nodiscard]] std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }

 private:
  Descriptor socket_;
  std::vector<std::byte> received_;
  std::size_t taken_ = 0;  ///< bytes of received_ that messages have taken
  std::deque<OutgoingFrame> unsent_;
  std::size_t unsent_bytes_ = 0;
};

}  // namespace terrace::node
