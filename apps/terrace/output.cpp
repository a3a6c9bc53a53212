#include "output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

namespace terrace::apps {
namespace {

int first_failure = 0;  ///< errno of the first result that was lost; 0 = no result was lost

void note_failure(bool written) {
  if (!written && first_failure == 0) first_failure = errno == 0 ? EIO : errno;
}

}  // namespace

void print_text(fmt::string_view format, fmt::format_args arguments) noexcept {
  errno = ENOMEM;  // what formatting may lack
  try {
    const std::string text = fmt::vformat(format, arguments);
    errno = 0;
    note_failure(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
  } catch (const std::exception&) {
    note_failure(false);
  }
}

void say_text(fmt::string_view head, fmt::string_view format, fmt::format_args arguments) noexcept {
  // If standard error fails, no other place is left to report it.
  try {
    std::string text(head.data(), head.size());
    text += fmt::vformat(format, arguments);
    if (head.size() > 0) text += '\n';
    [[maybe_unused]] const std::size_t lost = std::fwrite(text.data(), 1, text.size(), stderr);
  } catch (const std::exception&) {
    std::fputs("terrace: out of memory, also for a message\n", stderr);
  }
}

Status flush_results() {
  errno = 0;
  note_failure(std::fflush(stdout) == 0 && std::ferror(stdout) == 0);
  if (first_failure == 0) return {};
  return fail(Errc::io_error, "cannot write the results: {}", std::strerror(first_failure));
}

void occupy_closed_streams() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest number that is free is this one; what it is opened for is the wrong way round.
    [[maybe_unused]] const int opened =
        ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace terrace::apps
