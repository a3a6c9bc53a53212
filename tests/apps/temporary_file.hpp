// A file that is there for the length of a test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace terrace::apps {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content) {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-apps-XXXXXX").string();
    close(mkstemp(name.data()));
    path_ = name;
    std::ofstream(path_, std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }

  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace terrace::apps
