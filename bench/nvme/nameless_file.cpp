#include "nvme/nameless_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

namespace terrace::bench {

NamelessFile::NamelessFile(const std::string& folder, std::uint64_t bytes)
    : descriptor_(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)),
      failure_(descriptor_ < 0 ? errno : 0) {
  if (failure_ == 0) failure_ = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
}

NamelessFile::~NamelessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string NamelessFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_);
}

}  // namespace terrace::bench
