#include "terrace/core/read_file.hpp"

#include <cerrno>
#include <fstream>

#include "terrace/core/bytes.hpp"
#include "terrace/core/file_errors.hpp"

namespace terrace {

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 16;
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  while (stream && text.size() <= bytes_max) {
    const std::size_t before = text.size();
    text.resize(before + piece_bytes);
    stream.read(text.data() + before, piece_bytes);
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
  }
  if (text.size() > bytes_max) {
    return fail(Errc::invalid_argument, "{}: is larger than {}; is this the right file?", path,
                format_size(bytes_max));
  }
  // A folder opens, but cannot be read: only the end is a good end.
  if (stream.eof()) return text;
  return cannot_read(path, errno);
}

}  // namespace terrace
