// The templates of a session, for its own sources.
#pragma once

#include <memory>
#include <utility>

#include "protocol/frames.hpp"
#include "session.hpp"

namespace terrace::node {

template <typename Outcome>
void Session::start(std::function<Outcome()> job, std::function<void(Session&, Outcome&)> end) {
  ++under_way_;
  NodeState& node = node_;
  node_.workers.start(
      number_, [&node, number = number_, job = std::move(job), end = std::move(end)]() -> Ending {
        auto outcome = std::make_shared<Outcome>(job());
        return [&node, number, outcome, end] {
          Session* const session = node.session(number);
          if (session == nullptr) return;
          --session->under_way_;
          end(*session, *outcome);
        };
      });
}

template <typename Message>
void Session::reply(wire::Kind kind, std::uint64_t request, const Message& message,
                    std::vector<std::shared_ptr<const Descriptor>> descriptors) {
  const wire::Header header{
      .kind = static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | wire::reply_bit),
      .request = request};
  send({.bytes = wire::make_frame(header, message), .descriptors = std::move(descriptors)});
}

template <typename Message>
void Session::handle_as(const IncomingFrame& frame,
                        Status (Session::*answer)(std::uint64_t, const Message&)) {
  const Result<Message> message = wire::read_body<Message>(frame.body);
  const Status answered =
      message ? (this->*answer)(frame.header.request, *message) : tl::unexpected(message.error());
  if (!answered) {
    reply_error(static_cast<wire::Kind>(frame.header.kind), frame.header.request, answered.error());
  }
}

}  // namespace terrace::node
