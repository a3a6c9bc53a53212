#include "run/input.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "terrace/core/file_errors.hpp"

namespace terrace::apps {
namespace {

/// A file that is open for reading; standard input stays open.
class OpenInput {
 public:
  explicit OpenInput(const std::string& path)
      : owned_(path != standard_input),
        descriptor_(owned_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO) {}
  OpenInput(const OpenInput&) = delete;
  OpenInput& operator=(const OpenInput&) = delete;
  ~OpenInput() {
    if (owned_ && descriptor_ >= 0) ::close(descriptor_);
  }

  [[nodiscard]] int get() const noexcept { return descriptor_; }

 private:
  bool owned_;
  int descriptor_;
};

/// Reads until there are `wanted` bytes, or no more. Returns 0, or the reason why not.
int read_up_to(int descriptor, std::size_t wanted, std::string& bytes) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  while (bytes.size() < wanted) {
    const std::size_t before = bytes.size();
    bytes.resize(before + std::min(piece, wanted - before));
    const ssize_t got = ::read(descriptor, bytes.data() + before, bytes.size() - before);
    const int reason = errno;
    bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return 0;
    if (got < 0 && reason != EINTR) return reason;
  }
  return 0;
}

}  // namespace

Result<Input> read_input(const std::string& path, std::size_t wanted) {
  const std::string name = path == standard_input ? "standard input" : path;
  const OpenInput file(path);
  struct stat status{};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return cannot_read(name, errno);
  Input input;
  if (const int reason = read_up_to(file.get(), wanted, input.bytes); reason != 0) {
    return cannot_read(name, reason);
  }
  input.file_bytes = input.bytes.size();
  // Standard input may have been read by others, and begins where they stopped.
  if (!S_ISREG(status.st_mode) || path == standard_input) return input;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (input.bytes.size() < std::min(wanted, size)) {
    return fail(Errc::io_error, "{}: was cut from {} to {} bytes while it was read; run again",
                name, size, input.bytes.size());
  }
  input.file_bytes = std::max(size, input.file_bytes);
  return input;
}

Result<std::string> read_whole_input(const std::string& path, std::size_t most) {
  TERRACE_ASSIGN(Input input, read_input(path, most + 1));
  if (input.bytes.size() > most) {
    return fail(Errc::invalid_argument, "{}: is larger than {} bytes, as no file of its kind is",
                path, most);
  }
  return std::move(input.bytes);
}

}  // namespace terrace::apps
