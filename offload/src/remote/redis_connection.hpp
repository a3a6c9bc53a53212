// One connection to a server: commands go out in order, and answers come back in that order.
// hiredis writes commands and reads answers; the socket is this class's, because no wait may be
// longer than its caller's, and a server that has gone must not end the process by SIGPIPE.
#pragma once

#include <deque>
#include <memory>

#include "address_look_up.hpp"
#include "page_commands.hpp"
#include "storage/process_descriptor.hpp"

namespace terrace::offload {

/// Threads  one at a time
class RedisConnection {
 public:
  /// Starts to connect. Errors: io_error.
  [[nodiscard]] static Result<std::unique_ptr<RedisConnection>> begin(const SocketAddress& address);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  /// Adds a command to those that go out. Errors: out_of_memory.
  [[nodiscard]] Status append(const RedisCommand& command);
  /// Returns the bytes of commands that have not gone out.
  [[nodiscard]] std::size_t bytes_left() const noexcept { return bytes_left_; }

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// Returns the events of poll() that it waits for.
  [[nodiscard]] short events() const noexcept;
  /// Moves the bytes that can be moved without waiting. Errors: io_error: the connection is lost;
  /// answers that came before can still be taken.
  [[nodiscard]] Status move(short events);
  /// Returns the next answer, or null. Errors: io_error: the server does not keep to the protocol.
  [[nodiscard]] Result<RedisReply> take_answer();

 private:
  struct FreeReader {
    void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
  };
  struct FreeText {
    void operator()(char* text) const noexcept;
  };
  struct Output {
    std::unique_ptr<char, FreeText> text;
    std::size_t size = 0;
    std::size_t sent = 0;
  };
  RedisConnection(int socket, std::unique_ptr<redisReader, FreeReader> reader);
  [[nodiscard]] Status finish_connecting();
  [[nodiscard]] Status send_some();
  [[nodiscard]] Status receive_some();

  ProcessDescriptor socket_;
  std::unique_ptr<redisReader, FreeReader> reader_;
  std::deque<Output> outputs_;
  std::size_t bytes_left_ = 0;
  std::size_t bytes_unread_ = 0;  ///< received since the last whole answer
  bool is_connected_ = false;
};

}  // namespace terrace::offload
