#include "listener.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace terrace::node {
namespace {

constexpr mode_t owner_alone = 0700;
constexpr mode_t passable = 0711;
constexpr int clients_waiting = 256;

tl::unexpected<Error> failed(const std::string& path, const char* what) {
  const int number = errno;
  Error error = make_error(Errc::io_error, "{}: {}: {}", path, what, std::strerror(number));
  error.native = number;
  return tl::unexpected(error);
}

/// Makes the folder, or checks that nobody else can put a socket into it.
Status prepare_folder(const std::filesystem::path& folder, bool for_others) {
  const mode_t mode = for_others ? passable : owner_alone;
  if (::mkdir(folder.c_str(), mode) == 0) {
    if (::chmod(folder.c_str(), mode) == 0) return {};  // whatever the mask of modes is
    return failed(folder, "its mode");
  }
  if (errno != EEXIST) return failed(folder, "making the folder of the socket");
  struct stat found{};
  if (::stat(folder.c_str(), &found) != 0) return failed(folder, "the folder of the socket");
  const bool is_safe = S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() &&
                       (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (is_safe) return {};
  return fail(Errc::invalid_argument,
              "daemon.socket: {} has to be a folder of this user that no other may write to: give "
              "a folder of its own",
              folder.c_str());
}

}  // namespace

Listener::~Listener() { close(); }

void Listener::close() noexcept {
  socket_ = {};
  if (!path_.empty()) ::unlink(path_.c_str());
  path_.clear();
}

Status Listener::open(const std::string& path, bool for_others) {
  if (path.empty() || path.size() > socket_path_max) {
    return fail(Errc::invalid_argument,
                "daemon.socket: the path has {} bytes, and may have 1 to {}", path.size(),
                socket_path_max);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  TERRACE_TRY(prepare_folder(folder.empty() ? "." : folder, for_others));
  TERRACE_TRY(lock(path + ".lock"));
  return bind(path, for_others);
}

Status Listener::lock(const std::string& path) {
  lock_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_.is_open()) return failed(path, "the lock");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return failed(path, "the lock");
  return fail(Errc::not_ready,
              "{} is locked: another terraced runs there; stop it, or give another "
              "daemon.socket",
              path);
}

Status Listener::bind(const std::string& path, bool for_others) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) {
      return fail(Errc::invalid_argument, "daemon.socket: {} is there, and no socket", path);
    }
    ::unlink(path.c_str());  // of a daemon that was killed: this one has the lock
  }
  spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.is_open()) return failed(path, "a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  // In a folder that nobody else may enter or write to, nobody gets in between these calls.
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return failed(path, "binding the socket");
  }
  path_ = path;
  if (::chmod(path.c_str(), for_others ? 0666 : 0600) != 0) return failed(path, "its mode");
  if (::listen(socket_.get(), clients_waiting) != 0) return failed(path, "listening");
  return {};
}

Result<Listener::Accepted> Listener::accept() {
  Accepted accepted;
  accepted.socket =
      Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted.socket.is_open()) return accepted;
  if (errno == EMFILE || errno == ENFILE) {
    spare_ = {};
    const Descriptor refused(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    accepted.was_refused = refused.is_open();
  }
  if (!spare_.is_open()) spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return accepted;
}

}  // namespace terrace::node
