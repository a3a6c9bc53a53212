// A file that vanishes with its process, even if the process is killed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "terrace/core/result.hpp"

namespace terrace::bench {

/// A file of zeros without a name.
class NamelessFile {
 public:
  /// Errors   io_error naming the folder: no file, or no file of this size, can be made in it
  [[nodiscard]] static Result<NamelessFile> create(const std::string& folder, std::uint64_t bytes);

  NamelessFile(NamelessFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  NamelessFile& operator=(NamelessFile&&) = delete;
  ~NamelessFile();

  /// A path by which it is opened while this object lives.
  [[nodiscard]] std::string path() const;

 private:
  explicit NamelessFile(int descriptor) noexcept : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace terrace::bench
