// A store on other machines: a server of the Redis protocol, or a Redis Cluster.
//
//   TERRACE_ASSIGN(const auto server, RemoteServer::parse("redis://:secret@10.0.0.7:6379"));
//   TERRACE_ASSIGN(auto store, RemoteStore::open({.server = server, .ttl = an_hour}));
//
// The page of a key is the value of `terrace:` and the 32 hexadecimal digits of the key. A value
// has a head (magic, version, key, bytes of the page, checksum) and each part of 64 KiB has its
// checksum (XXH3 of key, number and bytes), so that get_part moves the parts that it needs, and no
// others. A value that another program wrote, of another key, with a bit that flipped, or cut
// short, is `corrupt`, and stays as it is.
//
// A server is a cache: it may evict pages, lose them in a restart, or let them expire. A page that
// is gone is an unknown one. A server that fails costs nothing: requests end at once with
// not_ready, while it is asked again in the background, at first soon, then seldom.
//
// Pages and password go in plain text over the network: the protocol's library of Debian 12 has no
// TLS (docs/security.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/store.hpp"

namespace terrace::offload {

struct RemoteAddress {
  std::string host;  ///< a name, or an address of IPv4 or IPv6
  std::uint16_t port = 6379;

  [[nodiscard]] std::string text() const;
  auto operator<=>(const RemoteAddress&) const = default;
};

/// A server, or nodes of one cluster, and what they want to know of a client.
struct RemoteServer {
  std::vector<RemoteAddress> addresses;
  std::string user;      ///< empty = the server's default user
  std::string password;  ///< empty = none is sent

  /// Reads `redis://[[user]:password@]host[:port][,host[:port]...]`. User and password may have
  /// bytes as %XX; a host of IPv6 stands in brackets.
  ///
  /// Errors   invalid_argument: another text. The message never has the password
  [[nodiscard]] static Result<RemoteServer> parse(std::string_view url);
};

struct RemoteStoreOptions {
  RemoteServer server;
  std::string key_prefix = "terrace:";
  Duration ttl{};  ///< pages expire so long after their put; 0 = never
  /// A request ends by it. The time of an awaited request begins with its batch, that of a
  /// background request with the request: few of them are under way at a time. A server that owes
  /// an answer for so long counts as failed.
  Duration deadline = std::chrono::seconds(1);
  Duration connect_timeout = std::chrono::milliseconds(500);  ///< with the greeting
  /// A server that failed is asked again after `retry_first`, and each time it fails again after
  /// twice the time before, up to `retry_max`.
  Duration retry_first = std::chrono::milliseconds(100);
  Duration retry_max = std::chrono::seconds(10);
  std::size_t depth = 256;                    ///< requests that one server is at
  std::uint64_t bytes_in_flight = 16U << 20;  ///< of those, where they are more than one
  std::size_t batches_max = 1024;             ///< under way
};

struct RemoteStoreState {
  bool is_cluster = false;
  std::size_t nodes = 0;        ///< that are known
  std::size_t nodes_ready = 0;  ///< that are connected and have greeted
  std::uint64_t corrupt = 0;    ///< values that are not what was written
  std::uint64_t redirects = 0;  ///< MOVED and ASK
  std::uint64_t failures = 0;   ///< of nodes: no connection, or no answer in time
  std::string last_failure = {};
};

/// Pages have 1 byte to 256 MiB.
///
/// usage() has pages that this object has put and not erased: what other clients do, and what a
/// server evicts or loses, is not seen.
///
/// A store belongs to the process that opened it: in a child that fork() made, all calls are
/// refused, and the destructor does nothing.
///
/// Errors   of a request: invalid_argument: no such page, one of another size, or no memory;
///          out_of_memory: the server has no room (maxmemory); corrupt: the value is not what was
///          written; unsupported: a later version of Terrace wrote it; not_ready: past the
///          deadline, or the server has failed: of a put or erase, it may still have been carried
///          out; io_error: the connection was lost, or the server refuses; cancelled: its batch was
///          cancelled before the request was sent, or the store ended
/// Threads  safe from any thread
class RemoteStore final : public Store {
 public:
  /// Starts to connect, and does not wait for it.
  ///
  /// Errors   invalid_argument: no address, or a length of time or a depth that is not above zero;
  ///          out_of_memory: no thread, or no descriptor
  [[nodiscard]] static Result<std::unique_ptr<RemoteStore>> open(const RemoteStoreOptions& options);

  /// Cancels requests that were not sent, and waits for the answers of the others until their
  /// deadline.
  ~RemoteStore() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "remote"; }
  void cancel(const StoreTicket& ticket) noexcept override;
  [[nodiscard]] StoreUsage usage() const override;
  [[nodiscard]] RemoteStoreState state() const;

 private:
  class Worker;
  explicit RemoteStore(std::unique_ptr<Worker> worker);
  [[nodiscard]] Status check_process() const;
  Result<StoreTicket> do_submit(std::span<PageRequest> batch, const BatchOptions& options) override;

  std::unique_ptr<Worker> worker_;
};

}  // namespace terrace::offload
