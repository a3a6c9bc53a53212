#include "terrace/core/replace_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace terrace {

Status replace_file(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  errno = 0;
  std::ofstream stream(temporary, std::ios::binary);
  stream << content;
  stream.close();
  std::error_code failed;
  if (!stream) {
    failed = std::error_code(errno == 0 ? EIO : errno, std::generic_category());
  } else {
    std::filesystem::rename(temporary, path, failed);
  }
  if (!failed) return {};
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return fail(Errc::io_error, "{}: cannot be written: {}", path, failed.message());
}

Status check_replaceable(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) {
    return fail(Errc::io_error, "{}: cannot be written: it is a folder", path);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return {};
  failed = std::error_code(errno, std::generic_category());
  return fail(Errc::io_error, "{}: cannot be written: {}", path, failed.message());
}

}  // namespace terrace
