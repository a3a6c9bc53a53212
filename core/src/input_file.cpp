#include "terrace/core/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "terrace/core/bytes.hpp"
#include "terrace/core/file_errors.hpp"

namespace terrace {
namespace {

/// Returns the bytes that a regular file still has; 0 for what has no size.
std::uint64_t bytes_left(int descriptor) noexcept {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  // Another program may have read the beginning of standard input.
  const off_t begin = std::max<off_t>(0, ::lseek(descriptor, 0, SEEK_CUR));
  return static_cast<std::uint64_t>(std::max<off_t>(0, status.st_size - begin));
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return cannot_read(path, errno);
  return InputFile(path, descriptor);
}

Result<InputFile> InputFile::open_named(const std::string& name) {
  if (name != standard_input) return open(name);
  const char* const shown = "standard input";
  // A descriptor of its own, so that both are closed alike.
  const int descriptor = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return cannot_read(shown, errno);
  return InputFile(shown, descriptor);
}

InputFile::InputFile(std::string name, int descriptor)
    : name_(std::move(name)), descriptor_(descriptor), file_bytes_(bytes_left(descriptor)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::size_t> InputFile::read(char* bytes, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t more = ::read(descriptor_, bytes + done, count - done);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return cannot_read(name_, errno);
    if (more == 0) break;
    done += static_cast<std::size_t>(more);
  }
  read_bytes_ += done;
  if (done < count && read_bytes_ < file_bytes_) {
    return fail(Errc::io_error,
                "{}: was cut from {} to {} bytes while it was read; start again once it is whole",
                name_, file_bytes_, read_bytes_);
  }
  return done;
}

Result<std::string> InputFile::read_up_to(std::size_t wanted) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 20;
  std::string bytes;
  for (bool ended = false; !ended && bytes.size() < wanted;) {
    const std::size_t before = bytes.size();
    const std::size_t piece = std::min(piece_bytes, wanted - before);
    bytes.resize(before + piece);
    TERRACE_ASSIGN(const std::size_t got, read(bytes.data() + before, piece));
    bytes.resize(before + got);
    ended = got < piece;
  }
  return bytes;
}

Result<std::string> InputFile::read_whole(std::size_t bytes_max) {
  TERRACE_ASSIGN(std::string bytes, read_up_to(bytes_max + 1));
  if (bytes.size() <= bytes_max) return bytes;
  return fail(Errc::invalid_argument, "{}: is larger than {}; is this the right file?", name_,
              format_size(bytes_max));
}

std::uint64_t InputFile::known_bytes() const noexcept { return std::max(file_bytes_, read_bytes_); }

std::optional<double> InputFile::share(std::uint64_t bytes) const noexcept {
  if (file_bytes_ == 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(bytes) / static_cast<double>(file_bytes_));
}

}  // namespace terrace
