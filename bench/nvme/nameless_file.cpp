#include "nvme/nameless_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace terrace::bench {

NamelessFile::NamelessFile(const std::string& folder, std::uint64_t bytes) {
  // Not O_TMPFILE, which file systems of containers may not have.
  std::string name = folder + "/terrace-bench-XXXXXX";
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  failure_ = descriptor_ < 0 ? errno : 0;
  if (failure_ != 0) return;
  ::unlink(name.c_str());
  failure_ = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
}

NamelessFile::~NamelessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string NamelessFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_);
}

}  // namespace terrace::bench
