// Text that other programs wrote, line by line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "terrace/core/input_file.hpp"
#include "terrace/core/result.hpp"

namespace terrace::tuning {

/// No line may be longer.
inline constexpr std::size_t line_bytes_max = std::size_t{1} << 26;

/// Lines of a text, which end with LF, or with CR and LF; a byte order mark before the first line
/// is skipped.
class LineReader {
 public:
  explicit LineReader(InputFile file) : file_(std::move(file)) {}

  /// Returns the next line that is not blank, valid until the next call; nothing after the last.
  /// Errors: io_error; corrupt naming a line that is longer than line_bytes_max, or the kind of a
  /// file that is not text.
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

  InputFile file_;
  std::string text_;  ///< bytes that were read and not yet returned, from begin_ on
  std::size_t begin_ = 0;
  std::size_t line_ = 0;  ///< from 1
  bool ended_ = false;
};

/// Returns what bytes at the beginning of a file say that it is, in place of what was asked for,
/// and what to do; empty where they say nothing. `binary`: the bytes may be any, so that fewer than
/// four say nothing.
std::string other_form(std::string_view first_bytes, bool binary = false);

}  // namespace terrace::tuning
