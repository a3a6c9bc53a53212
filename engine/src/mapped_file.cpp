#include "terrace/engine/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "terrace/core/file_errors.hpp"

namespace terrace::engine {
namespace {

Result<std::span<const std::byte>> map(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return cannot_read(path.string(), errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(Errc::io_error, "{}: is no regular file", path.string());
  }
  if (status.st_size == 0) return fail(Errc::corrupt, "{}: is empty", path.string());
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) return cannot_read(path.string(), errno);
  return std::span(static_cast<const std::byte*>(address), size);
}

}  // namespace

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK, because opening a FIFO in the model folder would otherwise wait for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return cannot_read(path.string(), errno);
  auto bytes = map(descriptor, path);
  ::close(descriptor);
  TERRACE_ASSIGN(const std::span<const std::byte> mapped, bytes);
  MappedFile file;
  file.bytes_ = mapped;
  return file;
}

}  // namespace terrace::engine
