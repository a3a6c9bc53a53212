#include "memory_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace terrace::node {
namespace {

tl::unexpected<Error> no_memory(const char* call, std::uint64_t bytes) {
  const int number = errno;
  Error error =
      make_error(Errc::out_of_memory, "{} of {} bytes: {}", call, bytes, std::strerror(number));
  error.native = number;
  return tl::unexpected(error);
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<Mapping> Mapping::of(const Descriptor& file, std::uint64_t bytes, bool may_write) {
  struct stat found{};
  const bool has_size = ::fstat(file.get(), &found) == 0 && bytes > 0 &&
                        static_cast<std::uint64_t>(found.st_size) == bytes;
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (!has_size || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return fail(Errc::invalid_argument, "the memory is not one of {} bytes that cannot shrink",
                bytes);
  }
  void* const data = ::mmap(nullptr, bytes, may_write ? PROT_READ | PROT_WRITE : PROT_READ,
                            MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return no_memory("a mapping", bytes);
  // Advice alone: a client sees huge pages as such only where it asks for them, too.
  static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Result<MemoryFile> MemoryFile::create(const MemoryFileOptions& options) {
  const unsigned huge = options.pages == PageSize::huge ? MFD_HUGETLB : 0U;
  Descriptor file(::memfd_create(options.name, MFD_CLOEXEC | MFD_ALLOW_SEALING | huge));
  if (!file.is_open()) return no_memory("memfd_create", options.bytes);
  if (::ftruncate(file.get(), static_cast<off_t>(options.bytes)) != 0) {
    return no_memory("the size of a memfd", options.bytes);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return no_memory("sealing a memfd", options.bytes);
  }
  return MemoryFile(std::move(file), options.bytes);
}

Status MemoryFile::forbid_other_writers() {
  if (::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return fail(Errc::unsupported, "the kernel has no F_SEAL_FUTURE_WRITE: Linux 5.1 is needed");
  }
  Descriptor reading(
      ::open(fmt::format("/proc/self/fd/{}", file_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reading.is_open()) return no_memory("opening a memfd for reading", bytes_);
  file_ = std::move(reading);
  return {};
}

}  // namespace terrace::node
