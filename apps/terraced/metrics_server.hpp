// Metrics and health of a daemon over HTTP. The server is a client of the daemon, so that its
// answers say what clients see.
//
//   GET /metrics  the counters, as metrics_text() writes them
//   GET /health   200 while the daemon answers
//
// Both are 503 with the reason where the daemon does not answer within a second.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "terrace/core/result.hpp"

namespace terrace::apps {

struct MetricsServerOptions {
  std::string address = {};  ///< HOST:PORT, as daemon.metrics; port 0 is any that is free
  std::string socket = {};   ///< of the daemon
};

class MetricsServer {
 public:
  /// Listens from now on, on threads of its own. The daemon need not serve yet.
  ///
  /// Errors   invalid_argument: another address; io_error: nobody can listen there
  [[nodiscard]] static Result<std::unique_ptr<MetricsServer>> start(
      const MetricsServerOptions& options);

  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  /// Ends with the answers that are under way.
  ~MetricsServer();

  [[nodiscard]] std::uint16_t port() const noexcept;

 private:
  class Listener;
  explicit MetricsServer(std::unique_ptr<Listener> listener);

  std::unique_ptr<Listener> listener_;
};

}  // namespace terrace::apps
