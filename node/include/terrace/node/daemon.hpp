// The daemon of a node: it owns the file of stored chunks and a pool of memory, and serves them to
// processes by a socket. docs/daemon.md says how it is run, docs/daemon-protocol.md what is said.
//
//   TERRACE_ASSIGN(const auto daemon, Daemon::open({.socket = path, .file = {...}}));
//   std::thread serving([&] { status = daemon->serve(); });
//   ...
//   daemon->stop();      // also from a signal's handler
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/config.hpp"
#include "terrace/offload/tier_store.hpp"
#include "terrace/tiers/digest.hpp"
#include "terrace/tiers/remote_chunks.hpp"

namespace terrace::node {

/// Limits of each client. One that reaches a limit gets out_of_memory for what is beyond it.
struct ClientLimits {
  std::uint32_t leases = 1024;
  std::uint32_t reservations = 16;
  /// Bytes that it has reserved; and apart from them those that its leases hold, of the pool and of
  /// lists of parts.
  std::uint64_t bytes = std::uint64_t{1} << 30;
};

/// Bytes of the file that tenants may have.
struct TenantQuotas {
  static constexpr std::uint64_t no_limit = ~std::uint64_t{0};

  std::uint64_t of_each = no_limit;
  /// By the names of tenants: the first digits, eight at least, of the SHA-256 of their salt, as
  /// lower-case hexadecimal digits; "none": without a salt. The longest name that fits counts.
  std::map<std::string, std::uint64_t> by_name = {};

  /// `digest`: of the salt; empty without a salt.
  [[nodiscard]] std::uint64_t of(std::string_view digest) const;

  /// Errors   those of read(); io_error: the file cannot be read
  [[nodiscard]] static Result<TenantQuotas> from(const Config& config);
  /// Reads lines of a name and a size; empty lines and those that begin with # are passed over.
  ///
  /// Errors   invalid_argument: another line; the message begins with name:line
  [[nodiscard]] static Result<std::map<std::string, std::uint64_t>> read(std::string_view text,
                                                                         std::string_view name);
};

enum class HugePages : std::uint8_t {
  off,
  advised,   ///< the kernel gives them where it has them and is allowed to
  reserved,  ///< from the machine's reserve, or an error
};

struct DaemonOptions {
  std::string socket = {};  ///< path; beside it stands a lock
  offload::TierStoreOptions file = {};
  /// Servers that published chunks go to as well, and that are asked for chunks which the file
  /// lacks.
  tiers::RemoteServers remote = {};
  Duration deadline = std::chrono::seconds{60};  ///< of each batch of the file
  std::uint64_t memory = std::uint64_t{1} << 30;
  HugePages huge_pages = HugePages::advised;
  bool lock_memory = false;
  std::vector<std::uint32_t> allow_users = {};  ///< beside the daemon's own user
  std::uint32_t clients = 256;
  ClientLimits client = {};
  Duration lease = std::chrono::seconds{600};     ///< without a use
  std::uint64_t pinned = std::uint64_t{1} << 30;  ///< most bytes of a tenant that are pinned
  TenantQuotas quotas = {};
  std::uint32_t threads = 4;                       ///< that wait for the file
  Duration drain = std::chrono::seconds{10};       ///< longest time from stop() to the end
  const Clock* clock = nullptr;                    ///< null: the steady one
  std::uint64_t seed = 0;                          ///< of hash tables and of the instance's number
  std::function<void(std::string_view)> log = {};  ///< a line, called on serve()'s thread
  /// Called on serve()'s thread after reload(); nothing = quotas stay as they are.
  std::function<std::optional<TenantQuotas>()> read_quotas = {};

  /// Errors   invalid_argument: a path that no socket can have, a user that is not known
  [[nodiscard]] static Result<DaemonOptions> from(const Config& config);
};

/// Returns the socket's path where daemon.socket is empty: in XDG_RUNTIME_DIR, or in /run.
[[nodiscard]] std::string default_socket();

class Daemon {
 public:
  /// Takes the lock, opens the file and listens: clients can connect from now on.
  ///
  /// Errors   not_ready: another daemon has the lock; invalid_argument: a folder that others may
  ///          write to; out_of_memory: memory that cannot be locked; those of
  ///          ChunkLibrary::open_file
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> open(const DaemonOptions& options);

  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  ~Daemon();

  /// Serves until stop(), then ends what is under way, or gives it up after `drain`. Called once.
  ///
  /// Errors   io_error: the kernel refuses to wait for sockets
  [[nodiscard]] Status serve();

  /// Safe from any thread and from a signal's handler.
  void stop() noexcept;
  void reload() noexcept;         ///< has quotas read again
  void look_at_clock() noexcept;  ///< ends what has expired: after a clock of tests was moved

 private:
  class Server;
  explicit Daemon(std::unique_ptr<Server> server);

  std::unique_ptr<Server> server_;
};

}  // namespace terrace::node
