// A folder of a test's own, gone when the test ends.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace terrace {

/// The folder's name is drawn at random: tests run as processes of their own, in parallel.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "terrace-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }

  /// Writes a file of that content; returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    std::ofstream stream(path_ / name, std::ios::binary);
    if (!(stream << content << std::flush)) {
      throw std::system_error(errno, std::generic_category(), path_ / name);
    }
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace terrace
