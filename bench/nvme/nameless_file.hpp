// A file that is gone with the process, whatever ends it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "terrace/core/result.hpp"

namespace terrace::bench {

/// A file of zeros without a name.
class NamelessFile {
 public:
  /// Errors   io_error naming the folder: no file can be made in it, or none so large
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
