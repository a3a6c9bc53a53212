// Files that are read once from their beginning to their end, and no further than needed: pipes,
// devices and standard input, too.
//
//   TERRACE_ASSIGN(InputFile file, InputFile::open_named(argument));
//   TERRACE_ASSIGN(const std::string text, file.read_whole(1 << 20));
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "terrace/core/result.hpp"

namespace terrace {

/// The name by which a user asks for standard input.
inline constexpr std::string_view standard_input = "-";

/// Threads  one at a time
class InputFile {
 public:
  /// Opens a file. Errors: io_error naming the file and the system's reason.
  [[nodiscard]] static Result<InputFile> open(const std::string& path);

  /// The same; `-` names standard input, which stays open.
  [[nodiscard]] static Result<InputFile> open_named(const std::string& name);

  InputFile(InputFile&& other) noexcept
      : name_(std::move(other.name_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        file_bytes_(other.file_bytes_),
        read_bytes_(other.read_bytes_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  /// Reads `count` bytes; fewer at the end of the file only.
  /// Errors: io_error naming the file and the system's reason, of a folder, too; or a regular file
  /// that was cut while it was read.
  [[nodiscard]] Result<std::size_t> read(char* bytes, std::size_t count);

  /// Returns the next `wanted` bytes; fewer at the end of the file only. Errors: as read().
  [[nodiscard]] Result<std::string> read_up_to(std::size_t wanted);

  /// Returns the rest of a file, which may have at most `bytes_max` bytes.
  /// Errors: as read(); invalid_argument: more comes, as from an endless device.
  [[nodiscard]] Result<std::string> read_whole(std::size_t bytes_max);

  /// As messages call it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t read_bytes() const noexcept { return read_bytes_; }

  /// Returns the size of a regular file, read or not; else as many bytes as were read.
  [[nodiscard]] std::uint64_t known_bytes() const noexcept;

  /// Returns which share of the file `bytes` are; nothing if the file's size is not known.
  [[nodiscard]] std::optional<double> share(std::uint64_t bytes) const noexcept;

 private:
  InputFile(std::string name, int descriptor);

  std::string name_;
  int descriptor_;
  std::uint64_t file_bytes_;  ///< 0 = not known, as of a pipe
  std::uint64_t read_bytes_ = 0;
};

}  // namespace terrace
