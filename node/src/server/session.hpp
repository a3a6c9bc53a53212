// A client of the daemon: its requests, its leases and its reservations, which end with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "connection.hpp"
#include "node_state.hpp"

namespace terrace::node {

/// Chunks that a client has leased, and their parts that it reads.
struct ClientLease {
  std::shared_ptr<const tiers::LookUp> found = nullptr;  ///< shared with jobs that read under it
  std::vector<tiers::ChunkLease> kept = {};              ///< of chunks that were added
  std::set<PooledPart*> parts = {};
  std::uint64_t bytes = 0;  ///< of the daemon's own memory
  TimePoint until = {};
};

/// Memory that a client writes a chunk into.
struct Reservation {
  std::shared_ptr<MemoryFile> memory = nullptr;
  std::shared_ptr<const wire::Reserve> chunk = nullptr;  ///< with the key in the library
  std::vector<std::uint64_t> places = {};
  bool is_committing = false;
  TimePoint until = {};
};

/// A part whose bytes are to come into memory. The look-up has the chunk's description.
struct PartToLoad {
  PooledPart* to = nullptr;
  tiers::PartOfChunk from = {};
};

/// A request to read parts that is not answered yet.
struct PendingRead {
  std::uint64_t session = 0;
  std::uint64_t request = 0;
  std::uint64_t lease = 0;
  std::vector<wire::PlacedPart> parts = {};
  std::vector<std::shared_ptr<PoolSegment>> segments = {};  ///< of the parts
  std::vector<PartToLoad> loads = {};                       ///< that nobody has begun to load
  std::size_t loading = 0;
};

class Session {
 public:
  Session(NodeState& node, std::uint64_t number, Descriptor socket, const Peer& peer);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Closes the socket, then gives back all that the client had.
  ~Session();

  [[nodiscard]] int descriptor() const noexcept { return connection_.descriptor(); }
  /// Whether it is to be read from: not while it has many requests or replies waiting.
  [[nodiscard]] bool may_receive() const noexcept;
  [[nodiscard]] bool has_unsent() const noexcept { return connection_.unsent_bytes() > 0; }
  /// Why it is to be closed; empty: it is not.
  [[nodiscard]] const std::string& closing() const noexcept { return closing_; }
  [[nodiscard]] std::size_t leases() const noexcept { return leases_.size(); }
  [[nodiscard]] std::size_t reservations() const noexcept { return reservations_.size(); }
  [[nodiscard]] std::string name() const;

  void receive();
  void send_more();
  /// Answers some requests of those that have come; returns whether there may be more.
  bool go_on();
  /// Ends leases and reservations that are over.
  void expire(TimePoint now);
  void tell_retired(std::uint32_t segment);
  void close(std::string why) {
    if (closing_.empty()) closing_ = std::move(why);
  }

 private:
  void handle(const IncomingFrame& frame);
  template <typename Message>
  void handle_as(const IncomingFrame& frame,
                 Status (Session::*answer)(std::uint64_t request, const Message& message));

  Status hello(std::uint64_t request, const wire::Hello& message);
  Status find(std::uint64_t request, const wire::Find& message);
  Status read(std::uint64_t request, const wire::Read& message);
  Status renew(std::uint64_t request, const wire::LeaseNumber& message);
  Status release(std::uint64_t request, const wire::LeaseNumber& message);
  Status lease(std::uint64_t request, const wire::Lease& message);
  Status let_go(std::uint64_t request, const wire::LeaseNumber& message);
  Status note_mass(std::uint64_t request, const wire::MassSample& message);
  Status reserve(std::uint64_t request, const wire::Reserve& message);
  Status commit(std::uint64_t request, const wire::ReservationNumber& message);
  Status cancel(std::uint64_t request, const wire::ReservationNumber& message);
  Status pin(std::uint64_t request, const wire::KeyMessage& message);
  Status unpin(std::uint64_t request, const wire::KeyMessage& message);
  Status stats(std::uint64_t request, const wire::Nothing& message);

  /// Has a job run for a request; `end` runs with this session if it is still there.
  template <typename Outcome>
  void start(std::function<Outcome()> job, std::function<void(Session&, Outcome&)> end);
  template <typename Message>
  void reply(wire::Kind kind, std::uint64_t request, const Message& message,
             std::vector<std::shared_ptr<const Descriptor>> descriptors = {});
  void reply_error(wire::Kind kind, std::uint64_t request, const Error& error);
  void send(OutgoingFrame frame);

  void answer_find(std::uint64_t request, tiers::LookUp look_up);
  /// Leases the chunks of a run; no_lease where it has none. Errors: out_of_memory: the client's
  /// leases hold too much.
  [[nodiscard]] Result<std::uint64_t> lease_run(tiers::LookUp look_up);
  [[nodiscard]] Status check_room_for_a_lease() const;
  /// Places one part of a read, or says by its status why it cannot be.
  Status place(const std::shared_ptr<PendingRead>& pending, ClientLease& lease, std::size_t number,
               const wire::WantedPart& wanted);
  /// Returns a part in memory; a new one is added to those that are to be loaded.
  [[nodiscard]] Result<PooledPart*> pooled(const ClientLease& lease, const tiers::PartOfChunk& part,
                                           std::vector<PartToLoad>& loads);
  /// Has parts of a lease loaded, many with one wait for the disk.
  void load(const ClientLease& lease, std::span<const PartToLoad> parts);
  void end_loading(const std::shared_ptr<PendingRead>& pending, std::size_t number,
                   PooledPart& part, const Status& loaded);
  void answer_read(PendingRead& pending);
  void open_reservation(std::uint64_t request, std::shared_ptr<const wire::Reserve> chunk,
                        std::vector<std::uint64_t> places);
  void answer_commit(std::uint64_t request, std::uint64_t number,
                     Result<ChunkService::PublishedChunk>& published);

  [[nodiscard]] Result<ClientLease*> lease_of(std::uint64_t number);
  /// Adds a chunk to a lease that a request names, or to a new one; returns its number, or
  /// no_lease.
  std::uint64_t keep(std::uint64_t lease, tiers::ChunkLease chunk);
  std::uint64_t add_lease(ClientLease lease);
  void let_go(ClientLease& lease);
  void end_lease(std::map<std::uint64_t, ClientLease>::iterator lease);
  void end_reservation(std::map<std::uint64_t, Reservation>::iterator reservation);

  NodeState& node_;
  const std::uint64_t number_;
  Connection connection_;
  const Peer peer_;
  bool is_greeted_ = false;
  std::string called_;  ///< by the client itself
  Tenant tenant_;
  std::map<std::uint64_t, ClientLease> leases_;
  std::map<std::uint64_t, Reservation> reservations_;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::uint32_t under_way_ = 0;  ///< requests that are not answered
  std::uint32_t finds_under_way_ = 0;
  std::set<std::uint32_t> segments_;  ///< that the client has
  std::vector<std::uint32_t> retired_;
  const TimePoint since_;
  std::string closing_;
};

}  // namespace terrace::node
