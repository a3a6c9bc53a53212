#include "nvme/nameless_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "terrace/core/file_errors.hpp"

namespace terrace::bench {

Result<NamelessFile> NamelessFile::create(const std::string& folder, std::uint64_t bytes) {
  // Not O_TMPFILE, which file systems of containers may not have.
  std::string name = folder + "/terrace-bench-XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) return cannot_write(folder, errno);
  ::unlink(name.c_str());
  NamelessFile file(descriptor);
  const int reason = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  if (reason != 0) return cannot_write(folder, reason);
  return file;
}

NamelessFile::~NamelessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string NamelessFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_);
}

}  // namespace terrace::bench
