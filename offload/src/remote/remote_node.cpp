#include "remote_node.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace terrace::offload {
namespace {

/// Commands that wait in memory for the socket to take them.
constexpr std::size_t output_bytes_max = std::size_t{1} << 20;

RedisCommand login_command(const RemoteServer& server) {
  if (server.user.empty()) return {"AUTH", server.password};
  return {"AUTH", server.user, server.password};
}

}  // namespace

RemoteNode::RemoteNode(RemoteAddress address, const RemoteStoreOptions& options,
                       std::function<void()> wake)
    : address_(std::move(address)),
      options_(options),
      wake_(std::move(wake)),
      breaker_({.retry_first = options.retry_first, .retry_max = options.retry_max}) {}

void RemoteNode::send(FlightPointer flight) {
  flight->node_host = address_.host;
  queue_.push_back(std::move(flight));
}

int RemoteNode::descriptor() const noexcept {
  return connection_ == nullptr ? -1 : connection_->descriptor();
}

short RemoteNode::events() const noexcept {
  return connection_ == nullptr ? short{0} : connection_->events();
}

TimePoint RemoteNode::next_time() const noexcept {
  switch (state_) {
    case State::idle:
      return breaker_.next_attempt();
    case State::looking_up:
    case State::greeting:
      return connect_by_;
    case State::ready:
      return due_.empty() ? TimePoint::max() : owed_since_ + options_.deadline;
  }
  return TimePoint::max();
}

void RemoteNode::advance(short events, TimePoint now, NodeNews& news) {
  if (state_ == State::idle && now >= breaker_.next_attempt()) begin(now, news);
  if (state_ == State::looking_up) take_addresses(now, news);
  if (connection_ != nullptr) move(events, now, news);
  if (state_ == State::idle || now < next_time()) return;
  if (state_ == State::ready) {
    fail_with(
        make_error(Errc::not_ready, "store remote: {} did not answer in time", address_.text()),
        now, news);
  } else {
    fail_with(
        make_error(Errc::not_ready, "store remote: {} did not greet in time", address_.text()), now,
        news);
  }
}

void RemoteNode::begin(TimePoint now, NodeNews& news) {
  state_ = State::looking_up;
  connect_by_ = now + options_.connect_timeout;
  look_up_ = AddressLookUp::begin(address_, wake_);
  take_addresses(now, news);
}

void RemoteNode::take_addresses(TimePoint now, NodeNews& news) {
  const auto answer = look_up_->answer();
  if (!answer) return;
  look_up_.reset();
  if (!*answer) return fail_with(answer->error(), now, news);
  addresses_ = **answer;
  std::ranges::reverse(addresses_);  // the last one is tried next
  connect(now, news);
}

void RemoteNode::connect(TimePoint now, NodeNews& news) {
  const SocketAddress address = addresses_.back();
  addresses_.pop_back();
  auto begun = RedisConnection::begin(address);
  if (!begun) return fail_with(begun.error(), now, news);
  connection_ = *std::move(begun);
  state_ = State::greeting;
  connect_by_ = now + options_.connect_timeout;
  greet(now);
}

void RemoteNode::greet(TimePoint now) {
  const RemoteServer& server = options_.server;
  if (!server.password.empty()) append(login_command(server), {.kind = Kind::login}, now);
  append({"CLIENT", "ID"}, {.kind = Kind::client_id}, now);
  if (client_before_ != 0) {
    append({"CLIENT", "KILL", "ID", std::to_string(client_before_)}, {.kind = Kind::end_before},
           now);
  }
  append({"CLUSTER", "SLOTS"}, {.kind = Kind::slots}, now);
}

void RemoteNode::ask_for_slots(TimePoint now) {
  if (std::exchange(asked_for_slots_, true)) return;
  append({"CLUSTER", "SLOTS"}, {.kind = Kind::slots}, now);
}

void RemoteNode::append(const RedisCommand& command, Due due, TimePoint now) {
  if (due_.empty()) owed_since_ = now;
  due_.push_back(std::move(due));
  if (const Status appended = connection_->append(command); !appended) appended_ = appended;
}

void RemoteNode::move(short events, TimePoint now, NodeNews& news) {
  Status moved = connection_->move(events);
  const Status taken = take_answers(now, news);
  if (moved && taken && state_ == State::ready) {
    send_queued(now, news);
    moved = appended_ ? connection_->move(0) : appended_;
  }
  if (!taken || !moved) fail_with(taken ? moved.error() : taken.error(), now, news);
}

bool RemoteNode::has_room() const noexcept {
  if (flights_due_ == 0) return true;
  return flights_due_ < options_.depth && bytes_due_ < options_.bytes_in_flight &&
         connection_->bytes_left() < output_bytes_max;
}

void RemoteNode::send_queued(TimePoint now, NodeNews& news) {
  while (!queue_.empty() && has_room()) {
    const FlightPointer flight = std::move(queue_.front());
    queue_.pop_front();
    if (flight->is_over) continue;
    try {
      send_page(flight, commands_of(*flight->work.request, flight->name, options_.ttl), now);
    } catch (const std::bad_alloc&) {
      news.without_memory.push_back(flight);
    }
  }
}

void RemoteNode::send_page(const FlightPointer& flight, std::span<const RedisCommand> commands,
                           TimePoint now) {
  flight->answers.clear();
  flight->answers_due = commands.size();
  flight->was_sent = true;
  ++flights_due_;
  bytes_due_ += flight->bytes;
  for (const RedisCommand& command : commands) {
    if (flight->asks_once) append({"ASKING"}, {.kind = Kind::asking}, now);
    const bool is_last = &command == &commands.back();
    append(command, {.flight = flight, .bytes = is_last ? flight->bytes : 0}, now);
  }
  flight->asks_once = false;
}

Status RemoteNode::take_answers(TimePoint now, NodeNews& news) {
  for (;;) {
    TERRACE_ASSIGN(RedisReply answer, connection_->take_answer());
    if (answer == nullptr) return {};
    if (due_.empty()) {
      return fail(Errc::io_error, "store remote: {} answers what it was not asked: {}",
                  address_.text(), text_of(*answer));
    }
    Due due = std::move(due_.front());
    due_.pop_front();
    owed_since_ = now;
    TERRACE_TRY(take(std::move(due), std::move(answer), news));
  }
}

Status RemoteNode::take(Due due, RedisReply answer, NodeNews& news) {
  switch (due.kind) {
    case Kind::login:
      if (!is_error(*answer)) return {};
      return fail(Errc::io_error, "store remote: {} refuses the user or the password: {}",
                  address_.text(), text_of(*answer));
    case Kind::client_id:
      return take_client_id(*answer);
    case Kind::end_before:
      client_before_ = 0;
      return {};
    case Kind::asking:
      return {};
    case Kind::slots:
      return take_slots(*answer, news);
    case Kind::page:
      break;
  }
  RemoteFlight& flight = *due.flight;
  if (!flight.is_over) flight.answers.push_back(std::move(answer));
  if (--flight.answers_due > 0) return {};
  --flights_due_;
  bytes_due_ -= due.bytes;
  if (!flight.is_over) news.answered.push_back(std::move(due.flight));
  return {};
}

/// A user who may not ask for it is served without.
Status RemoteNode::take_client_id(const redisReply& answer) {
  client_id_ = answer.type == REDIS_REPLY_INTEGER ? answer.integer : 0;
  const std::string_view text = text_of(answer);
  if (!is_error(answer) || text.starts_with("NOPERM") || text.starts_with("ERR unknown")) return {};
  return fail(Errc::io_error, "store remote: {} refuses: {}", address_.text(), text);
}

Status RemoteNode::take_slots(const redisReply& answer, NodeNews& news) {
  asked_for_slots_ = false;
  const std::string_view text = text_of(answer);
  const bool is_of_cluster = !is_error(answer);
  if (is_of_cluster) {
    TERRACE_ASSIGN(news.slots, slots_of(answer, address_.host));
  } else if (text.starts_with("LOADING")) {
    return fail(Errc::io_error, "store remote: {} is not ready: {}", address_.text(), text);
  }
  if (state_ == State::ready) return {};
  // The last answer of the greeting.
  news.is_no_cluster = !is_of_cluster;
  state_ = State::ready;
  addresses_.clear();
  breaker_.succeeded();
  return {};
}

void RemoteNode::fail_with(const Error& error, TimePoint now, NodeNews& news) {
  const auto is_write = [](const Due& due) { return due.flight && due.flight->writes; };
  if (std::ranges::any_of(due_, is_write) && client_id_ != 0) client_before_ = client_id_;
  const auto lose = [&](FlightPointer& flight) {
    if (flight->is_over) return;
    flight->failure = tl::unexpected(error);
    news.lost.push_back(std::move(flight));
  };
  for (Due& due : due_) {
    const bool is_last = due.flight != nullptr && --due.flight->answers_due == 0;
    if (is_last) lose(due.flight);
  }
  due_.clear();
  connection_.reset();
  look_up_.reset();
  client_id_ = 0;
  flights_due_ = 0;
  bytes_due_ = 0;
  asked_for_slots_ = false;
  appended_ = {};
  if (state_ == State::greeting && !addresses_.empty()) return connect(now, news);
  state_ = State::idle;
  std::ranges::for_each(queue_, lose);
  queue_.clear();
  breaker_.failed(now);
  news.failure = error;
}

}  // namespace terrace::offload
