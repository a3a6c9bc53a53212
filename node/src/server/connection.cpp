#include "connection.hpp"

#include <utility>

namespace terrace::node {
namespace {

constexpr std::size_t received_at_once = std::size_t{64} << 10;

}  // namespace

Status Connection::receive() {
  // At most one message that is not whole, and what came with its end.
  if (received_.size() - taken_ > wire::header_bytes + wire::body_bytes_max) return {};
  received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  TERRACE_ASSIGN(const Received state, receive_some(socket_, received_at_once, received_, nullptr));
  if (state == Received::end) return fail(Errc::cancelled, "the client has closed the connection");
  return {};
}

Result<std::optional<IncomingFrame>> Connection::take() {
  const auto bytes = std::span<const std::byte>(received_).subspan(taken_);
  if (bytes.size() < wire::header_bytes) return std::nullopt;
  TERRACE_ASSIGN(const wire::Header header, wire::read_header(bytes.first<wire::header_bytes>()));
  if (bytes.size() < wire::header_bytes + header.body_bytes) return std::nullopt;
  const auto body = bytes.subspan(wire::header_bytes, header.body_bytes);
  taken_ += wire::header_bytes + header.body_bytes;
  return IncomingFrame{.header = header, .body = {body.begin(), body.end()}};
}

Status Connection::send(OutgoingFrame frame) {
  unsent_bytes_ += frame.bytes.size();
  unsent_.push_back(std::move(frame));
  return unsent_.size() == 1 ? send_more() : Status{};
}

Status Connection::send_more() {
  while (!unsent_.empty()) {
    OutgoingFrame& frame = unsent_.front();
    const std::size_t before = frame.sent;
    TERRACE_TRY(send_some(socket_, frame));
    unsent_bytes_ -= frame.sent - before;
    if (frame.sent < frame.bytes.size()) return {};
    unsent_.pop_front();
  }
  return {};
}

}  // namespace terrace::node
