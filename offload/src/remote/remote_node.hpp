// One server: its connection, what was sent to it, and when it is asked again after a failure.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "circuit_breaker.hpp"
#include "redis_connection.hpp"
#include "remote_flight.hpp"

namespace terrace::offload {

/// Events at a node while it moved bytes.
struct NodeNews {
  std::vector<FlightPointer> answered;  ///< with all of their answers
  std::vector<FlightPointer> lost;      ///< that were sent, or waited to be, when the node failed
  std::vector<FlightPointer> without_memory;  ///< to be sent
  std::optional<Error> failure;
  std::optional<std::vector<SlotRange>> slots;
  bool is_no_cluster = false;  ///< the node has greeted, and is a server for itself
};

/// It connects by itself, again and again. A greeting: password, who this client is, an end to the
/// connection before it, and the map of slots. That end matters: a server that was stopped for a
/// while may still have commands of it, and must not carry them out after later ones.
///
/// Threads  one at a time
class RemoteNode {
 public:
  /// `options` outlives it. `wake` is called by any thread when there is something to do.
  RemoteNode(RemoteAddress address, const RemoteStoreOptions& options, std::function<void()> wake);

  [[nodiscard]] const RemoteAddress& address() const noexcept { return address_; }
  [[nodiscard]] bool is_ready() const noexcept { return state_ == State::ready; }
  /// Whether it failed, and has not been heard of since.
  [[nodiscard]] bool is_out() const noexcept { return breaker_.is_open(); }
  [[nodiscard]] bool is_idle() const noexcept { return due_.empty() && queue_.empty(); }

  /// Sends a request, as soon as the node is ready and has room for it.
  void send(FlightPointer flight);
  /// Asks a node that is ready for the map of slots, unless it has been asked.
  void ask_for_slots(TimePoint now);

  /// Returns the descriptor to poll, or -1.
  [[nodiscard]] int descriptor() const noexcept;
  [[nodiscard]] short events() const noexcept;
  /// Returns when advance() has something to do at the latest.
  [[nodiscard]] TimePoint next_time() const noexcept;
  /// Moves what can be moved. `events`: of poll().
  void advance(short events, TimePoint now, NodeNews& news);

 private:
  enum class State : std::uint8_t { idle, looking_up, greeting, ready };
  enum class Kind : std::uint8_t { login, client_id, end_before, slots, asking, page };
  /// An answer that the node owes.
  struct Due {
    Kind kind = Kind::page;
    FlightPointer flight = nullptr;
    std::size_t bytes = 0;
  };

  void begin(TimePoint now, NodeNews& news);
  void take_addresses(TimePoint now, NodeNews& news);
  void connect(TimePoint now, NodeNews& news);
  void greet(TimePoint now);
  void move(short events, TimePoint now, NodeNews& news);
  void send_queued(TimePoint now, NodeNews& news);
  void send_page(const FlightPointer& flight, std::span<const RedisCommand> commands,
                 TimePoint now);
  void append(const RedisCommand& command, Due due, TimePoint now);
  /// Takes the answers that are there. Errors: the node has failed.
  Status take_answers(TimePoint now, NodeNews& news);
  Status take(Due due, RedisReply answer, NodeNews& news);
  Status take_client_id(const redisReply& answer);
  Status take_slots(const redisReply& answer, NodeNews& news);
  [[nodiscard]] bool has_room() const noexcept;
  void fail_with(const Error& error, TimePoint now, NodeNews& news);

  const RemoteAddress address_;
  const RemoteStoreOptions& options_;
  const std::function<void()> wake_;
  CircuitBreaker breaker_;
  State state_ = State::idle;
  TimePoint connect_by_{};
  std::shared_ptr<AddressLookUp> look_up_;
  std::vector<SocketAddress> addresses_;  ///< that were not tried
  std::unique_ptr<RedisConnection> connection_;
  long long client_id_ = 0;      ///< of the connection; 0 = unknown
  long long client_before_ = 0;  ///< of one that was lost with writes unanswered; 0 = none
  std::deque<FlightPointer> queue_;
  std::deque<Due> due_;
  std::size_t flights_due_ = 0;
  std::size_t bytes_due_ = 0;
  TimePoint owed_since_{};  ///< the first of those answers
  bool asked_for_slots_ = false;
  Status appended_ = {};  ///< no memory for a command
};

}  // namespace terrace::offload
