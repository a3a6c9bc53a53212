#include "redis_connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "page_frame.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t receive_bytes = std::size_t{256} << 10;
constexpr std::size_t receives_at_once = 16;
/// More for one answer is more than any request asks for.
constexpr std::size_t answer_bytes_max = frame_page_bytes_max + (std::size_t{64} << 20);

tl::unexpected<Error> lost(std::string_view doing, int error) {
  Error lost = make_error(Errc::io_error, "store remote: {}: {}", doing, std::strerror(error));
  lost.native = error;
  return tl::unexpected(lost);
}

bool must_wait(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void RedisConnection::FreeText::operator()(char* text) const noexcept { redisFreeCommand(text); }

RedisConnection::RedisConnection(int socket, std::unique_ptr<redisReader, FreeReader> reader)
    : socket_(socket), reader_(std::move(reader)) {
  reader_->maxbuf = receive_bytes;
}

RedisConnection::~RedisConnection() = default;

Result<std::unique_ptr<RedisConnection>> RedisConnection::begin(const SocketAddress& address) {
  std::unique_ptr<redisReader, FreeReader> reader(redisReaderCreate());
  if (reader == nullptr) return fail(Errc::out_of_memory, "store remote: no memory to connect");
  const int socket =
      ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return lost("opening a socket", errno);
  std::unique_ptr<RedisConnection> begun(new RedisConnection(socket, std::move(reader)));
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  const auto* const target = reinterpret_cast<const sockaddr*>(&address.bytes);
  if (::connect(socket, target, address.size) != 0 && errno != EINPROGRESS) {
    return lost("connecting", errno);
  }
  return begun;
}

Status RedisConnection::append(const RedisCommand& command) {
  std::vector<const char*> words;
  std::vector<std::size_t> sizes;
  for (const std::string& word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const long long size =
      redisFormatCommandArgv(&text, static_cast<int>(words.size()), words.data(), sizes.data());
  if (size < 0) return fail(Errc::out_of_memory, "store remote: no memory for a command");
  outputs_.push_back(
      {.text = std::unique_ptr<char, FreeText>(text), .size = static_cast<std::size_t>(size)});
  bytes_left_ += static_cast<std::size_t>(size);
  return {};
}

short RedisConnection::events() const noexcept {
  const bool has_output = !is_connected_ || bytes_left_ > 0;
  return static_cast<short>(POLLIN | (has_output ? POLLOUT : 0));
}

Status RedisConnection::move(short events) {
  if (!is_connected_) {
    if ((events & (POLLOUT | POLLERR | POLLHUP)) == 0) return {};
    TERRACE_TRY(finish_connecting());
  }
  // Bytes that came in before the connection was lost are read first.
  if ((events & (POLLIN | POLLERR | POLLHUP)) != 0) TERRACE_TRY(receive_some());
  return send_some();
}

Status RedisConnection::finish_connecting() {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return lost("connecting", error);
  is_connected_ = true;
  return {};
}

Status RedisConnection::send_some() {
  while (!outputs_.empty()) {
    Output& next = outputs_.front();
    const ssize_t sent =
        ::send(socket_.get(), next.text.get() + next.sent, next.size - next.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return must_wait(errno) ? Status{} : lost("sending", errno);
    next.sent += static_cast<std::size_t>(sent);
    bytes_left_ -= static_cast<std::size_t>(sent);
    if (next.sent == next.size) outputs_.pop_front();
  }
  return {};
}

Status RedisConnection::receive_some() {
  thread_local std::vector<char> buffer(receive_bytes);
  for (std::size_t i = 0; i < receives_at_once; ++i) {
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return must_wait(errno) ? Status{} : lost("receiving", errno);
    if (count == 0) return fail(Errc::io_error, "store remote: the server closed the connection");
    bytes_unread_ += static_cast<std::size_t>(count);
    if (redisReaderFeed(reader_.get(), buffer.data(), static_cast<std::size_t>(count)) !=
            REDIS_OK ||
        bytes_unread_ > answer_bytes_max) {
      return fail(Errc::io_error, "store remote: an answer of over {} bytes", bytes_unread_);
    }
    // Whole answers are taken before more comes.
    if (static_cast<std::size_t>(count) < buffer.size()) break;
  }
  return {};
}

Result<RedisReply> RedisConnection::take_answer() {
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    return fail(Errc::io_error, "store remote: the server does not speak the protocol: {}",
                static_cast<const char*>(reader_->errstr));
  }
  if (reply != nullptr) bytes_unread_ = reader_->len - reader_->pos;
  return RedisReply(static_cast<redisReply*>(reply));
}

}  // namespace terrace::offload
