// A file as read-only memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "terrace/core/result.hpp"

namespace terrace::engine {

/// Maps a whole file for reading until it is destroyed. Pages are read on first touch. Cutting
/// the file short while it is mapped is the one thing this does not survive.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  /// Maps the regular file at `path`.
  ///
  /// Errors   io_error: cannot open or map, no regular file; corrupt: empty. Each names the path
  static Result<MappedFile> open(const std::filesystem::path& path);

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace terrace::engine
