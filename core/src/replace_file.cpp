#include "terrace/core/replace_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace terrace {
namespace {

bool same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;
  if (std::filesystem::equivalent(a, b, unknown)) return true;
  // Files that are yet to be written: by where they would lie.
  const auto place = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, unknown), unknown);
  };
  return !place(a).empty() && place(a) == place(b);
}

tl::unexpected<Error> cannot_write(const std::string& path, int reason) {
  return fail(Errc::io_error, "{}: cannot be written: {}", path, std::strerror(reason));
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> writers{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), writers.fetch_add(1));
}

Result<PendingFile> PendingFile::write(const std::string& path, std::string_view content) {
  const std::string temporary = temporary_name(path);
  PendingFile pending(path, temporary);
  errno = 0;
  std::ofstream stream(temporary, std::ios::binary);
  stream << content;
  stream.close();
  if (!stream) return cannot_write(path, errno == 0 ? EIO : errno);
  return pending;
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

PendingFile::~PendingFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

Status PendingFile::publish() {
  std::error_code failed;
  std::filesystem::rename(temporary_, path_, failed);
  if (failed) return cannot_write(path_, failed.value());
  temporary_.clear();
  return {};
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
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) {
    return fail(Errc::io_error, "{}: cannot be written: it is a folder", path);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return {};
  return cannot_write(path, errno);
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
