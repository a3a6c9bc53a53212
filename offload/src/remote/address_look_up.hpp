// Addresses of a host, looked up while others work: a name server may take many seconds.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "terrace/offload/remote_store.hpp"
#include "terrace/offload/thread.hpp"

namespace terrace::offload {

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

/// Threads  safe from any thread
class AddressLookUp {
 public:
  /// Starts to look a host up; a host that is a number needs no name server. `done` is called
  /// once, by any thread, when there is an answer.
  [[nodiscard]] static std::shared_ptr<AddressLookUp> begin(const RemoteAddress& address,
                                                            const std::function<void()>& done);

  /// Waits for nothing: a look-up that has no answer goes on by itself.
  ~AddressLookUp();
  AddressLookUp(const AddressLookUp&) = delete;
  AddressLookUp& operator=(const AddressLookUp&) = delete;

  /// Returns the answer, once there is one: one address or more, or io_error.
  [[nodiscard]] std::optional<Result<std::vector<SocketAddress>>> answer() const;

 private:
  struct State;
  struct Abandoned;
  explicit AddressLookUp(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
  Thread thread_;
};

}  // namespace terrace::offload
