// The daemon's one thread for sockets: it waits for clients and for the ends of jobs.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "listener.hpp"
#include "node_state.hpp"
#include "session.hpp"
#include "terrace/node/daemon.hpp"

namespace terrace::node {

class Daemon::Server {
 public:
  static Result<std::unique_ptr<Server>> open(const DaemonOptions& options);

  [[nodiscard]] Status serve();
  void stop() noexcept;
  void reload() noexcept;
  void wake() noexcept;

 private:
  explicit Server(const DaemonOptions& options);

  Status prepare();
  [[nodiscard]] Status watch(int descriptor, std::uint64_t number, std::uint32_t events);
  /// Waits, then does what there is to do.
  Status run_round();
  void take_client();
  void greet(Descriptor socket);
  void refuse(const std::string& why);
  void settle_sessions();
  void settle(std::uint64_t number, Session& session);
  void close(std::uint64_t number);
  void take_quotas();
  /// Whether what was under way at stop() is over, or has had its time.
  [[nodiscard]] bool is_drained();

  const DaemonOptions options_;
  const SteadyClock steady_;
  const Clock& clock_;
  std::shared_ptr<tiers::ChunkLibrary> library_;
  std::optional<ChunkService> chunks_;
  std::optional<PartPool> pool_;
  std::optional<NodeState> node_;
  Listener listener_;
  Descriptor epoll_;
  Descriptor wake_;
  std::map<std::uint64_t, std::uint32_t> watched_;  ///< events of sessions
  bool has_more_ = false;                           ///< messages that have come wait to be handled
  std::optional<Deadline> drain_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> reload_ = false;
};

}  // namespace terrace::node
