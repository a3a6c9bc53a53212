// A server that a test has for itself: a process on a free port of this machine, with a folder of
// its own, both gone with the object.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "core/temporary_folder.hpp"
#include "redis/redis_client.hpp"
#include "terrace/offload/remote_store.hpp"

namespace terrace::redis {

struct RedisServerOptions {
  std::vector<std::string> settings = {};  ///< more words of the command line
  std::string password = {};
  bool is_of_cluster = false;
};

/// Returns whether this machine has the program.
bool is_installed();

/// Waits until a condition holds. Throws after two minutes: a fault, not a slow machine.
void wait_until(const std::function<bool()>& holds, const std::string& condition);

class RedisServer {
 public:
  /// Returns when the server answers.
  explicit RedisServer(const RedisServerOptions& options = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] int bus_port() const noexcept { return bus_port_; }
  [[nodiscard]] offload::RemoteAddress address() const {
    return {.host = "127.0.0.1", .port = static_cast<std::uint16_t>(port_)};
  }
  [[nodiscard]] RedisClient client() const;

  void kill();
  /// Starts it again at its port, after kill(), without its data.
  void restart();
  /// It does nothing until go_on(): connections to it stay, and are not answered.
  void stop();
  void go_on();

 private:
  bool start();

  RedisServerOptions options_;
  TemporaryFolder folder_;
  int port_ = 0;
  int bus_port_ = 0;
  pid_t process_ = 0;
};

}  // namespace terrace::redis
