#include "terrace/offload/storage_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "terrace/core/file_errors.hpp"

namespace terrace::offload {
namespace {

// Exclusive: of a device, that nobody has mounted it.
constexpr int access_flags = O_RDWR | O_CLOEXEC | O_EXCL;
constexpr mode_t owner_only = 0600;  // keys and values are what a user wrote

struct Opened {
  int descriptor = -1;
  bool created = false;
};

/// Opens what is there, or makes it; where both fail, errno says why.
Opened open_or_create(const std::string& path, int flags) noexcept {
  const int there = ::open(path.c_str(), access_flags | flags);
  if (there >= 0 || errno != ENOENT) return {there, false};
  return {::open(path.c_str(), access_flags | flags | O_CREAT | O_EXCL, owner_only), true};
}

}  // namespace

Result<StorageFile> StorageFile::open(const StorageFileOptions& options) {
  bool direct = options.direct == DirectIo::where_possible;
  Opened opened = open_or_create(options.path, direct ? O_DIRECT : 0);
  if (opened.descriptor < 0 && direct && errno == EINVAL) {
    // The file system made the file before it refused the flag: what is there now is empty.
    const bool made = opened.created;
    direct = false;
    opened = open_or_create(options.path, 0);
    opened.created = opened.created || made;
  }
  if (opened.descriptor < 0) return cannot_write(options.path, errno);
  StorageFile file(options.path, opened.descriptor, direct);
  TERRACE_TRY(file.lock(options.patience));
  TERRACE_TRY(file.measure());
  if (file.bytes_ > 0) return file;
  // Made a moment ago, or by a process that ended before it went on.
  file.created_ = true;
  const Status allocated = file.allocate(options.bytes);
  if (allocated) return file;
  if (opened.created) ::unlink(file.path_.c_str());
  return tl::unexpected(allocated.error());
}

StorageFile::~StorageFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status StorageFile::lock(Duration patience) const {
  const Deadline deadline(patience);
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return cannot_write(path_, errno);
    if (deadline.left() == Duration{}) return in_use();
    // tidy-allow(library_calls): nothing tells of another process's end
    std::this_thread::sleep_for(std::min<Duration>(deadline.left(), std::chrono::milliseconds(5)));
  }
  return {};
}

tl::unexpected<Error> StorageFile::in_use() const {
  Error error = make_error(
      Errc::io_error, "{}: another process has it open; end that one, or name another file", path_);
  error.native = EWOULDBLOCK;
  return tl::unexpected(error);
}

Status StorageFile::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes % alignment != 0) {
    return fail(Errc::invalid_argument, "{}: a new file takes a multiple of {} bytes, not {}",
                path_, alignment, bytes);
  }
  const int reason = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  if (reason != 0) return cannot_write(path_, reason);
  bytes_ = bytes;
  return {};
}

Status StorageFile::measure() {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) return cannot_read(path_, errno);
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
    return fail(Errc::io_error, "{}: is neither a file nor a block device", path_);
  }
  // The end of a device is known by going there; its size in `status` is 0.
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  if (end < 0) return cannot_read(path_, errno);
  bytes_ = static_cast<std::uint64_t>(end);
  return {};
}

}  // namespace terrace::offload
