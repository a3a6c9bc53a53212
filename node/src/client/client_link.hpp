// The connection of a client: one request at a time, each until a deadline. A reply that comes too
// late is taken in all the same, and what it brought is given back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "memory/memory_file.hpp"
#include "protocol/frames.hpp"
#include "sockets/socket_io.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {

struct Reply {
  wire::Header header = {};
  std::vector<std::byte> body = {};
};

/// Threads  connection_is(), note_mass() and release() from any thread, all else by the thread
/// whose Turn it is
class ClientLink {
 public:
  explicit ClientLink(const DaemonClientOptions& options);
  ClientLink(const ClientLink&) = delete;
  ClientLink& operator=(const ClientLink&) = delete;

  [[nodiscard]] const DaemonClientOptions& options() const noexcept { return options_; }
  [[nodiscard]] TimePoint now() const noexcept { return clock_.now(); }
  [[nodiscard]] Duration lease_time() const noexcept { return lease_time_; }
  /// Number of the connection, which leases are of; 0 where there is none.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_.load(); }

  /// Connects, unless it is connected, and takes in what has come. Errors: those of
  /// DaemonClient::connect; not_ready: the daemon has not answered, and has a pause.
  [[nodiscard]] Status connect(const Deadline& deadline);

  /// Sends a request and waits for its reply. Errors: not_ready; those that the daemon answers
  /// with.
  template <typename Answer, typename Message>
  [[nodiscard]] Result<Answer> call(wire::Kind kind, const Message& message,
                                    const Deadline& deadline) {
    const std::uint64_t request = next_request_++;
    const wire::Header header{.kind = static_cast<std::uint8_t>(kind), .request = request};
    TERRACE_ASSIGN(const Reply reply,
                   exchange({.bytes = wire::make_frame(header, message)}, header, deadline));
    Result<Answer> answer = wire::read_body<Answer>(reply.body);
    if (!answer) disconnect(answer.error());
    return answer;
  }

  /// Takes the descriptors that came with a reply. Errors: not_ready: there are fewer, and the
  /// connection is given up.
  [[nodiscard]] Result<std::vector<Descriptor>> take_descriptors(std::size_t count);
  /// Takes over the segments that a reply names. Errors: as take_descriptors().
  [[nodiscard]] Status take_segments(const wire::ReadReply& reply);
  /// Returns a segment, or null.
  [[nodiscard]] std::shared_ptr<const Mapping> segment(std::uint32_t number) const;
  void disconnect(const Error& why) noexcept;
  /// Has reservation that will not be committed end.
  void cancel(std::uint64_t reservation) noexcept;

  /// Has the parts that were read under a lease stay no longer, once this call ends.
  void let_go(std::uint64_t lease) noexcept;

  /// Has the daemon count a sample of the attention mass, if it is connected: at once if nobody is
  /// calling, and otherwise after that call. Returns whether it is.
  bool note_mass(double mass) noexcept;

  /// Gives a lease back: at once if nobody is calling, and otherwise after that call.
  void release(std::uint64_t epoch, std::uint64_t lease) noexcept;
  /// Whether the connection of that number is still there, as the socket says.
  [[nodiscard]] bool connection_is(std::uint64_t epoch) const noexcept;

 private:
  friend class Turn;
  /// A message whose reply nobody waits for: a lease, its parts or a reservation that nobody wants,
  /// or a sample.
  struct Notice {
    std::uint64_t epoch = 0;
    wire::Kind kind = wire::Kind::release;
    std::uint64_t number = 0;
  };

  [[nodiscard]] bool begin(const Deadline& deadline);
  void end() noexcept;
  [[nodiscard]] Status open_socket();
  [[nodiscard]] Status greet(const Deadline& deadline);
  [[nodiscard]] Result<Reply> exchange(OutgoingFrame frame, const wire::Header& header,
                                       const Deadline& deadline);
  [[nodiscard]] Result<Reply> wait_for_reply(std::uint64_t request, const Deadline& deadline);
  [[nodiscard]] Status send(OutgoingFrame frame, const Deadline& deadline);
  /// Returns the next message that has come, if one has. Errors: the connection is of no use.
  [[nodiscard]] Result<std::optional<Reply>> take_reply();
  [[nodiscard]] Status wait_for(short events, const Deadline& deadline) const;
  /// Takes in a reply that nobody waits for.
  void absorb(const Reply& reply);
  void absorb_all();
  /// Sends a notice at once if nobody is calling, and otherwise has the call send it. Returns false
  /// if the connection of its epoch is gone.
  bool tell(Notice notice) noexcept;
  void send_notices() noexcept;
  void begin_pause() noexcept;

  const DaemonClientOptions options_;
  const SteadyClock steady_;
  const Clock& clock_;

  std::shared_ptr<const Descriptor> socket_;
  std::uint64_t epochs_ = 0;
  std::uint64_t next_request_ = 1;
  Duration lease_time_{};
  std::optional<OutgoingFrame> unsent_;  ///< a message that was sent in part
  std::vector<std::byte> received_;
  std::vector<Descriptor> descriptors_;  ///< in the order of the messages that they came with
  std::map<std::uint32_t, std::shared_ptr<const Mapping>> segments_;
  std::set<std::uint64_t> late_;  ///< requests whose replies did not come in time
  Duration pause_{};
  TimePoint next_try_{};
  std::optional<Error> last_failure_;

  std::atomic<std::uint64_t> epoch_ = 0;
  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable free_;
  bool is_calling_ = false;
  std::shared_ptr<const Descriptor> visible_socket_;
  std::vector<Notice> notices_;
};

/// The right to use a link, as long as this object lives.
class Turn {
 public:
  explicit Turn(ClientLink& link)
      : link_(link), deadline_(link.options().deadline), has_begun_(link.begin(deadline_)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (has_begun_) link_.end();
  }

  /// Connects where it has to. Errors: those of ClientLink::connect.
  [[nodiscard]] Status connect() {
    if (has_begun_) return link_.connect(deadline_);
    return fail(Errc::not_ready, "another call to the daemon is under way");
  }
  [[nodiscard]] const Deadline& deadline() const noexcept { return deadline_; }
  /// Sends what nobody waits for, before the call ends.
  void send_notices() noexcept { link_.send_notices(); }
  template <typename Answer, typename Message>
  [[nodiscard]] Result<Answer> call(wire::Kind kind, const Message& message) {
    return link_.call<Answer>(kind, message, deadline_);
  }

 private:
  ClientLink& link_;
  Deadline deadline_;
  bool has_begun_;
};

}  // namespace terrace::node
