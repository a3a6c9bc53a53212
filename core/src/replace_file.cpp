#include "terrace/core/replace_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "terrace/core/assert.hpp"
#include "terrace/core/file_errors.hpp"

namespace terrace {
namespace {

namespace fs = std::filesystem;

constexpr int links_max = 40;  // as many as the kernel follows

/// Returns the file that `path` leads to: the target of a link, even if it does not exist yet.
/// Renaming onto the link itself would leave it no link.
std::string followed(const std::string& path) {
  fs::path file = path;
  std::error_code no_link;
  for (int links = 0; links < links_max; ++links) {
    const fs::path named = fs::read_symlink(file, no_link);
    if (no_link) break;
    file = file.parent_path() / named;
  }
  return file;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;
  if (fs::equivalent(a, b, unknown)) return true;
  // Files that are yet to be written: by where they would lie.
  const auto place = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(followed(path), unknown), unknown);
  };
  return !place(a).empty() && place(a) == place(b);
}

/// The names of temporary files. A thread that takes a name out of its place owns that name.
std::array<std::atomic<const std::string*>, 64> pending_names;
static_assert(std::atomic<const std::string*>::is_always_lock_free, "handlers must not wait");

/// Returns the place that the name got; null if no place was free.
std::atomic<const std::string*>* enlist(const std::string* name) noexcept {
  for (auto& place : pending_names) {
    const std::string* nobody = nullptr;
    if (place.compare_exchange_strong(nobody, name)) return &place;
  }
  return nullptr;
}

/// Refuses what a rename would do away with, such as /dev/null.
Status check_kind(const std::string& path) {
  std::error_code failed;
  const fs::file_type kind = fs::status(path, failed).type();
  if (kind == fs::file_type::regular || kind == fs::file_type::not_found) return {};
  if (kind == fs::file_type::none) return cannot_write(path, failed.value());
  return fail(Errc::io_error, "{}: cannot be written: it is {}; name a file", path,
              kind == fs::file_type::directory ? "a folder" : "no regular file");
}

/// Lets the users who could read the replaced file read the new one, and no other user. Called
/// before anything is written.
Status take_permissions(int file, const std::string& path) {
  struct stat old{};
  if (::stat(path.c_str(), &old) != 0) return {};  // a new file: what the process masks decides
  mode_t mode = old.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
  // A group that the process may not name is not the one that the old file let read.
  constexpr auto same_owner = static_cast<uid_t>(-1);
  if (::fchown(file, old.st_uid, old.st_gid) != 0 && ::fchown(file, same_owner, old.st_gid) != 0) {
    mode = (mode & ~mode_t{S_IRWXG}) | ((mode & S_IRWXO) << 3);
  }
  if (::fchmod(file, mode) != 0) return cannot_write(path, errno);
  return {};
}

/// Returns a name beside the file that no other process takes.
Result<std::string> temporary_name(const std::string& path) {
  constexpr std::size_t name_bytes_max = 200;  // file systems take 255
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) return cannot_write(path, errno);
  const fs::path file = followed(path);
  const std::string name = file.filename().string().substr(0, name_bytes_max);
  return (file.parent_path() / fmt::format("{}.{:016x}.tmp", name, random)).string();
}

}  // namespace

Result<PendingFile> PendingFile::create(const std::string& path) {
  TERRACE_ASSIGN(std::string temporary, temporary_name(path));
  PendingFile pending(path, std::move(temporary));  // first: a signal may come at any time
  const bool is_new = ::access(path.c_str(), F_OK) != 0;
  const mode_t mode = is_new ? 0666 : 0600;  // of a new one less what the process masks
  // A file or a link that has the name already is another's.
  const int file =
      ::open(pending.temporary_->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file >= 0) {
    pending.stream_.reset(::fdopen(file, "wb"));
    if (pending.stream_ != nullptr) {
      if (!is_new) TERRACE_TRY(take_permissions(file, path));
      return pending;
    }
  }
  const int reason = errno;
  if (file >= 0) {
    ::close(file);
  } else {
    pending.forget();  // there is nothing to remove
  }
  return cannot_write(path, reason);
}

Result<PendingFile> PendingFile::write(const std::string& path, std::string_view content) {
  TERRACE_ASSIGN(PendingFile pending, create(path));
  pending.append(content);
  TERRACE_TRY(pending.close());
  return pending;
}

PendingFile::PendingFile(std::string path, std::string temporary)
    : path_(std::move(path)),
      temporary_(std::make_unique<std::string>(std::move(temporary))),
      place_(enlist(temporary_.get())) {}

PendingFile::~PendingFile() {
  if (temporary_ == nullptr) return;
  stream_.reset();
  std::error_code ignored;
  fs::remove(*temporary_, ignored);
  forget();
}

void PendingFile::append(std::string_view bytes) {
  if (failure_ != 0) return;
  TERRACE_ASSERT(stream_ != nullptr);
  errno = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), stream_.get()) == bytes.size()) return;
  failure_ = errno == 0 ? EIO : errno;
}

Status PendingFile::close() {
  if (stream_ != nullptr) {
    errno = 0;
    const bool closed = std::fclose(stream_.release()) == 0;
    if (!closed && failure_ == 0) failure_ = errno == 0 ? EIO : errno;
  }
  if (failure_ != 0) return cannot_write(path_, failure_);
  return {};
}

Status PendingFile::publish() {
  TERRACE_TRY(close());
  TERRACE_TRY(check_kind(path_));
  std::error_code failed;
  fs::rename(*temporary_, followed(path_), failed);
  if (failed) return cannot_write(path_, failed.value());
  forget();
  return {};
}

void PendingFile::forget() noexcept {
  const std::string* its = temporary_.get();
  if (place_ == nullptr || place_->compare_exchange_strong(its, nullptr)) {
    temporary_.reset();
  } else {
    [[maybe_unused]] const std::string* const read_by_a_handler = temporary_.release();
  }
}

void remove_pending_files() noexcept {
  for (auto& place : pending_names) {
    const std::string* const name = place.exchange(nullptr);
    if (name == nullptr) continue;
    ::unlink(name->c_str());
    const std::string* nobody = nullptr;
    place.compare_exchange_strong(nobody, name);  // back for its file
  }
}

Status publish_all(std::vector<PendingFile>& files) {
  for (PendingFile& file : files) TERRACE_TRY(file.publish());
  return {};
}

Status replace_file(const std::string& path, std::string_view content) {
  TERRACE_ASSIGN(PendingFile pending, PendingFile::write(path, content));
  return pending.publish();
}

Status check_replaceable(const std::string& path) {
  TERRACE_TRY(check_kind(path));
  // Permissions alone do not tell of a disk that is full or read-only. Some bytes, for an empty
  // file fits on a full disk; the destructor removes them.
  TERRACE_TRY(PendingFile::write(path, std::string(512, '\0')));
  return {};
}

Status check_targets(const std::vector<NamedFile>& targets, const std::vector<NamedFile>& sources) {
  std::vector<NamedFile> taken = sources;
  for (const NamedFile& target : targets) {
    if (target.path.empty()) continue;
    const auto other = std::ranges::find_if(taken, [&](const NamedFile& each) {
      return !each.path.empty() && same_file(target.path, each.path);
    });
    if (other != taken.end()) {
      return fail(Errc::invalid_argument, "{} {}: is the same file as {}; name another to write",
                  target.name, target.path, other->name);
    }
    TERRACE_TRY(check_replaceable(target.path));
    taken.push_back(target);
  }
  return {};
}

}  // namespace terrace
