// Files that other programs wrote, read once from their beginning to their end: pipes, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "terrace/core/result.hpp"

namespace terrace::tuning {

/// Bytes of a file, or of standard input, which `-` names.
class SourceFile {
 public:
  /// Errors: io_error naming the file and the reason.
  [[nodiscard]] static Result<SourceFile> open(const std::filesystem::path& path);
  SourceFile(SourceFile&& other) noexcept
      : name_(std::move(other.name_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        file_bytes_(other.file_bytes_),
        read_bytes_(other.read_bytes_) {}
  SourceFile& operator=(SourceFile&&) = delete;
  ~SourceFile();

  /// Reads `count` bytes; fewer at the end of the file only.
  /// Errors: io_error: the system's reason, or a file that was cut while it was read.
  [[nodiscard]] Result<std::size_t> read(char* bytes, std::size_t count);

  /// As messages call it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t read_bytes() const noexcept { return read_bytes_; }

  /// Share of the file of which so many bytes are dealt with; nothing where no size is known.
  [[nodiscard]] std::optional<double> share(std::uint64_t bytes) const noexcept;

 private:
  SourceFile(std::string name, int descriptor, std::uint64_t file_bytes)
      : name_(std::move(name)), descriptor_(descriptor), file_bytes_(file_bytes) {}

  std::string name_;
  int descriptor_;
  std::uint64_t file_bytes_;  ///< 0 = not known, as of a pipe
  std::uint64_t read_bytes_ = 0;
};

/// No line may be longer.
inline constexpr std::size_t line_bytes_max = std::size_t{1} << 26;

/// Lines of a text, whatever ends them (LF, or CR and LF), without a byte order mark before the
/// first.
class LineReader {
 public:
  explicit LineReader(SourceFile file) : file_(std::move(file)) {}

  /// Returns the next line that is not blank, valid until the next call; nothing behind the last.
  /// Errors: io_error; corrupt naming a line that is longer than line_bytes_max, or what the file
  /// holds in place of text.
  [[nodiscard]] Result<std::optional<std::string_view>> next();

  /// Returns an error about the line that was read last.
  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view what) const;

  /// Share of the file up to the end of that line; nothing where no size is known.
  [[nodiscard]] std::optional<double> share() const noexcept {
    return file_.share(file_.read_bytes() - (text_.size() - begin_));
  }

 private:
  Result<std::optional<std::string_view>> next_line();
  Status fill();

  SourceFile file_;
  std::string text_;  ///< what was read and is not dealt with, from begin_ on
  std::size_t begin_ = 0;
  std::size_t line_ = 0;  ///< from 1
  bool ended_ = false;
};

/// Returns what bytes at the beginning of a file say that it is, in place of what was asked for,
/// and what to do; empty where they say nothing. `binary`: the bytes may be any, so that fewer than
/// four say nothing.
std::string other_form(std::string_view first_bytes, bool binary = false);

}  // namespace terrace::tuning
