#include "terrace/core/file_errors.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace terrace {
namespace {

namespace fs = std::filesystem;

const char* in_words(int reason) { return std::strerror(reason == 0 ? EIO : reason); }

template <typename... Args>
tl::unexpected<Error> failure(int reason, LocatedFormat<std::type_identity_t<Args>...> text,
                              Args&&... args) {
  Error error = make_error<Args...>(Errc::io_error, text, std::forward<Args>(args)...);
  error.native = reason;
  return tl::unexpected(error);
}

/// Returns the first part of a path that is a link to nothing, or an empty path.
fs::path broken_link(const fs::path& path) {
  std::error_code ignored;
  fs::path part;
  for (const fs::path& name : path) {
    part /= name;
    if (fs::is_symlink(part, ignored) && !fs::exists(part, ignored)) return part;
  }
  return {};
}

}  // namespace

tl::unexpected<Error> cannot_read(const std::string& path, int reason) {
  // An interrupted download, or a folder that was copied without its links' targets, leaves these.
  const fs::path link = reason == ENOENT ? broken_link(path) : fs::path();
  if (link.empty()) return failure(reason, "{}: cannot be read: {}", path, in_words(reason));
  std::error_code ignored;
  return failure(reason, "{}: is a link to {}, which is not there; get that file again",
                 link.string(), fs::read_symlink(link, ignored).string());
}

tl::unexpected<Error> cannot_write(const std::string& path, int reason) {
  return failure(reason, "{}: cannot be written: {}", path, in_words(reason));
}

}  // namespace terrace
