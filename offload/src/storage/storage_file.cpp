#include "terrace/offload/storage_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "process_descriptor.hpp"
#include "terrace/core/file_errors.hpp"

namespace terrace::offload {
namespace {

namespace fs = std::filesystem;

constexpr int access_flags = O_RDWR | O_CLOEXEC;
constexpr int exclusive = O_EXCL;    // of a device: it is not mounted, nor opened with O_EXCL
constexpr mode_t owner_only = 0600;  // keys and values are what a user wrote

struct Opened {
  int descriptor = -1;
  bool created = false;
};

/// Opens what is there, or makes it; where both fail, errno says why.
Opened open_or_create(const std::string& path) noexcept {
  const int there = ::open(path.c_str(), access_flags | exclusive);
  if (there >= 0 || errno != ENOENT) return {there, false};
  // Beside O_CREAT, the flag O_EXCL would refuse links.
  return {::open(path.c_str(), access_flags | O_CREAT, owner_only), true};
}

/// Has transfers pass the page cache by. Returns whether the file system can do that.
bool set_direct(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) == 0;
}

std::string from_root(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::absolute(path, error);
  return error ? path : place.string();
}

FileIdentity identity_of(const struct stat& status) noexcept {
  // The file of a device may be made anew while the device is the same.
  if (S_ISBLK(status.st_mode)) return {.device = status.st_rdev};
  return {.device = status.st_dev, .number = status.st_ino};
}

tl::unexpected<Error> in_use(const std::string& path, bool may_be_mounted) {
  Error error = make_error(Errc::io_error,
                           "{}: another process has it open{}; end that one, or name another file",
                           path, may_be_mounted ? ", or it is mounted" : "");
  error.native = EWOULDBLOCK;
  return tl::unexpected(error);
}

}  // namespace

Result<StorageFile> StorageFile::open(const StorageFileOptions& options) {
  const Deadline deadline(options.patience);
  std::unique_ptr<StorageFile> file;
  while (true) {
    bool is_locked = false;
    if (file == nullptr) {
      TERRACE_ASSIGN(file, open_path(options.path));
    }
    if (file != nullptr) {
      TERRACE_ASSIGN(is_locked, file->lock());
    }
    if (is_locked && file->check_place()) break;
    if (is_locked) file.reset();  // the lock of a removed file says nothing of the one there now
    if (deadline.left() == Duration{}) return in_use(options.path, file == nullptr);
    // tidy-allow(library_calls): nothing tells of another process's end
    std::this_thread::sleep_for(std::min<Duration>(deadline.left(), std::chrono::milliseconds(5)));
  }
  file->direct_ = options.direct == DirectIo::where_possible && set_direct(file->descriptor());
  if (file->bytes_ > 0) return std::move(*file);
  // Made a moment ago, or by a process that ended before it went on.
  file->created_ = true;
  const Status grown = file->grow(options.bytes);
  if (grown) return std::move(*file);
  file->undo();
  return tl::unexpected(grown.error());
}

Result<std::unique_ptr<StorageFile>> StorageFile::open_path(const std::string& path) {
  const Opened opened = open_or_create(path);
  if (opened.descriptor < 0 && errno == EBUSY) return nullptr;
  if (opened.descriptor < 0) return cannot_write(path, errno);
  std::unique_ptr<StorageFile> file(new StorageFile(path, opened.descriptor));
  TERRACE_TRY(file->measure());
  file->is_made_ = opened.created;
  return file;
}

Result<bool> StorageFile::lock() {
  if (::flock(descriptor(), LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    if (reason == EWOULDBLOCK) return false;
    undo();
    return cannot_write(path_, reason);
  }
  TERRACE_TRY(measure());
  is_made_ = is_made_ && bytes_ == 0;  // otherwise another process was faster
  return true;
}

StorageFile::StorageFile(std::string path, int descriptor)
    : path_(std::move(path)),
      place_(from_root(path_)),
      descriptor_(std::make_unique<ProcessDescriptor>(descriptor)) {}

StorageFile::StorageFile(StorageFile&& other) noexcept = default;
StorageFile::~StorageFile() = default;

int StorageFile::descriptor() const noexcept { return descriptor_->get(); }

Status StorageFile::measure() {
  struct stat status{};
  if (::fstat(descriptor(), &status) != 0) return cannot_read(path_, errno);
  is_device_ = S_ISBLK(status.st_mode);
  if (!S_ISREG(status.st_mode) && !is_device_) {
    return fail(Errc::io_error, "{}: is neither a file nor a block device", path_);
  }
  identity_ = identity_of(status);
  // The end of a device is known by going there; its size in `status` is 0.
  const off_t end = ::lseek(descriptor(), 0, SEEK_END);
  if (end < 0) return cannot_read(path_, errno);
  bytes_ = bytes_before_ = static_cast<std::uint64_t>(end);
  return {};
}

Status StorageFile::check_place() const {
  struct stat there{};
  bool is_gone = true;
  if (::stat(place_.c_str(), &there) == 0) {
    is_gone = identity_of(there) != identity_;
  } else if (errno != ENOENT && errno != ENOTDIR && ::fstat(descriptor(), &there) == 0) {
    is_gone = there.st_nlink == 0;  // the process may no longer look into the folder
  }
  if (is_gone) {
    return fail(Errc::io_error,
                "{}: was removed, moved or replaced by another; put it back and open it again",
                path_);
  }
  if (!is_device_ && static_cast<std::uint64_t>(there.st_size) < bytes_) {
    return fail(Errc::io_error, "{}: was cut to {} of its {} bytes; remove it and open it again",
                path_, there.st_size, bytes_);
  }
  return {};
}

Status StorageFile::grow(std::uint64_t bytes) {
  if (is_device_) return {};
  if (bytes == 0 || bytes % alignment != 0) {
    return fail(Errc::invalid_argument, "{}: a new file takes a multiple of {} bytes, not {}",
                path_, alignment, bytes);
  }
  is_grown_ = true;
  int reason = EINTR;
  while (reason == EINTR) {
    reason = ::posix_fallocate(descriptor(), 0, static_cast<off_t>(bytes));
  }
  if (reason != 0) return cannot_write(path_, reason);
  bytes_ = bytes;
  return {};
}

void StorageFile::undo() noexcept {
  if (is_made_) {
    // Where a link leads, not the link.
    char* const place = ::realpath(place_.c_str(), nullptr);
    struct stat there{};
    if (place != nullptr && ::stat(place, &there) == 0 && identity_of(there) == identity_) {
      ::unlink(place);
    }
    std::free(place);
    return;
  }
  // An allocation that failed may have extended the file: cut it, too.
  if (is_grown_ && ::ftruncate(descriptor(), static_cast<off_t>(bytes_before_)) == 0)
    bytes_ = bytes_before_;
}

}  // namespace terrace::offload
