// The place at which clients find the daemon: a lock, a folder of its user's, and a socket in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sockets/descriptor.hpp"
#include "sockets/socket_io.hpp"

namespace terrace::node {

/// Longest path of a socket.
inline constexpr std::size_t socket_path_max = 107;

class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Removes the socket. The lock's file stays: another daemon may have opened it.
  ~Listener();

  /// Takes the lock and listens. A folder that is not there is made. `for_others`: other users
  /// may connect, too.
  ///
  /// Errors   not_ready: another daemon has the lock; invalid_argument: a path that is too long, a
  ///          folder that others may write to, or a file in the place of the socket; io_error
  [[nodiscard]] Status open(const std::string& path, bool for_others);

  /// Takes the next client; an empty descriptor where there is none. Where no descriptor is left, a
  /// client is taken and closed at once, so that it does not wait for ever. Errors: io_error.
  struct Accepted {
    Descriptor socket = {};
    bool was_refused = false;
  };
  [[nodiscard]] Result<Accepted> accept();

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// From now on nobody can connect.
  void close() noexcept;

 private:
  [[nodiscard]] Status lock(const std::string& path);
  [[nodiscard]] Status bind(const std::string& path, bool for_others);

  std::string path_;  ///< of the socket, once it is there
  Descriptor lock_;
  Descriptor socket_;
  Descriptor spare_;  ///< closed where no other descriptor is left
};

}  // namespace terrace::node
