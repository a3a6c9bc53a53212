#include "terrace/core/file_errors.hpp"

#include <cerrno>
#include <cstring>

namespace terrace {
namespace {

const char* in_words(int reason) { return std::strerror(reason == 0 ? EIO : reason); }

}  // namespace

tl::unexpected<Error> cannot_read(const std::string& path, int reason) {
  return fail(Errc::io_error, "{}: cannot be read: {}", path, in_words(reason));
}

tl::unexpected<Error> cannot_write(const std::string& path, int reason) {
  return fail(Errc::io_error, "{}: cannot be written: {}", path, in_words(reason));
}

}  // namespace terrace
