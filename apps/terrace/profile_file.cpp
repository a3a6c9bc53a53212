#include "profile_file.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "terrace/core/file_errors.hpp"
#include "terrace/core/replace_file.hpp"

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;

/// Holds the lock of the folder that a file lies in.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& file, Duration patience) {
    std::error_code unknown;
    const fs::path folder = fs::weakly_canonical(fs::absolute(file), unknown).parent_path();
    FolderLock lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock.folder_ < 0) return cannot_write(file, errno);
    const Deadline deadline(patience);
    while (::flock(lock.folder_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) break;  // the file system has no such locks
      if (deadline.left() == Duration::zero()) {
        return fail(Errc::not_ready,
                    "{}: another command writes here and does not end; try again, or set deadline",
                    file);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return lock;
  }

  FolderLock(FolderLock&& other) noexcept : folder_(std::exchange(other.folder_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock() {
    if (folder_ >= 0) ::close(folder_);
  }

 private:
  explicit FolderLock(int folder) : folder_(folder) {}

  int folder_;
};

}  // namespace

Result<MachineProfile> profile_to_extend(const std::string& file, const Machine& machine) {
  MachineProfile profile;
  auto earlier = MachineProfile::read(file);
  std::error_code unknown;
  if (earlier) {
    profile = std::move(*earlier);
  } else if (earlier.error().native != ENOENT && !fs::is_empty(file, unknown)) {
    return tl::unexpected(earlier.error());
  }
  // Another machine's figures are nothing to add to. A profile written by hand may name no CPU.
  if (!profile.cpu.empty() && profile.cpu != machine.cpu) profile = {};
  if (profile.cpu.empty()) profile.compute.clear();
  profile.date = fmt::format("{:%Y-%m-%d}", std::chrono::system_clock::now());
  profile.cpu = machine.cpu;
  profile.isa = machine.isa;
  return profile;
}

Status extend_profile(const std::string& file, const Machine& machine, Duration patience,
                      FunctionRef<void(MachineProfile&)> put) {
  TERRACE_ASSIGN(const FolderLock lock, FolderLock::take(file, patience));
  TERRACE_ASSIGN(MachineProfile profile, profile_to_extend(file, machine));
  put(profile);
  return replace_file(file, profile.to_yaml());
}

}  // namespace terrace::apps
