// Sending and receiving at both ends of a connection, without waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "descriptor.hpp"
#include "terrace/core/result.hpp"

namespace terrace::node {

/// Bytes of one message, and descriptors that go with the first of them.
struct OutgoingFrame {
  std::vector<std::byte> bytes;
  std::vector<std::shared_ptr<const Descriptor>> descriptors = {};
  std::size_t sent = 0;
};

/// Sends what the socket takes. Errors: io_error: the other end is gone.
[[nodiscard]] Status send_some(const Descriptor& socket, OutgoingFrame& frame);

enum class Received : std::uint8_t { bytes, nothing, end };

/// Appends what has come, at most so many bytes at a time, and the descriptors that came with it.
/// A null list has the kernel close descriptors. Errors: io_error.
[[nodiscard]] Result<Received> receive_some(const Descriptor& socket, std::size_t bytes_max,
                                            std::vector<std::byte>& to,
                                            std::vector<Descriptor>* descriptors);

/// The process at the other end, as the kernel knew it when the connection was made.
struct Peer {
  std::int32_t process = 0;
  std::uint32_t user = 0;
};
[[nodiscard]] Result<Peer> peer_of(const Descriptor& socket);

}  // namespace terrace::node
