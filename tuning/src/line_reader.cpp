#include "line_reader.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace terrace::tuning {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 18;
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr std::string_view blanks = " \t\r";

struct Form {
  std::string_view begins;
  std::string_view name;
  std::string_view advice;
};

constexpr std::array forms{
    Form{"\x28\xB5\x2F\xFD", "compressed by zstd", "unpack it with zstd -d"},
    Form{"\x1F\x8B", "compressed by gzip", "unpack it with gunzip"},
    Form{"\xFD"
         "7zXZ",
         "compressed by xz", "unpack it with unxz"},
    Form{"BZh", "compressed by bzip2", "unpack it with bunzip2"},
    Form{"PK\x03\x04", "a zip archive", "unpack it with unzip"},
    Form{"TRRCTRC", "a trace of terrace already", "leave --from out"},
    Form{"\xFF\xFE", "text in UTF-16", "write it in UTF-8, with iconv -t UTF-8"},
    Form{"\xFE\xFF", "text in UTF-16", "write it in UTF-8, with iconv -t UTF-8"},
};

}  // namespace

std::string other_form(std::string_view first_bytes, bool binary) {
  for (const Form& form : forms) {
    if (!first_bytes.starts_with(form.begins) || (binary && form.begins.size() < 4)) continue;
    return fmt::format("the file is {}; {}", form.name, form.advice);
  }
  return {};
}

tl::unexpected<Error> LineReader::wrong(std::string_view what) const {
  return fail(Errc::corrupt, "{}:{}: {}", file_.name(), line_, what);
}

Status LineReader::fill() {
  text_.erase(0, std::exchange(begin_, 0));
  const std::size_t had = text_.size();
  text_.resize(had + piece_bytes);
  TERRACE_ASSIGN(const std::size_t more, file_.read(text_.data() + had, piece_bytes));
  text_.resize(had + more);
  ended_ = more < piece_bytes;
  return {};
}

Result<std::optional<std::string_view>> LineReader::next_line() {
  std::size_t searched = begin_;
  std::size_t end = text_.find('\n', searched);
  while (end == std::string::npos && !ended_ && text_.size() - begin_ <= line_bytes_max) {
    searched = text_.size() - begin_;  // fill() moves what is left to the beginning
    TERRACE_TRY(fill());
    end = text_.find('\n', searched);
  }
  const std::size_t size = std::min(end, text_.size()) - begin_;
  if (size == 0 && end == std::string::npos) return std::nullopt;
  ++line_;
  if (size > line_bytes_max) {
    return wrong(fmt::format("the line is longer than {} MiB", line_bytes_max >> 20U));
  }
  const auto line = std::string_view(text_).substr(begin_, size);
  begin_ = std::min(begin_ + size + 1, text_.size());
  return line;
}

Result<std::optional<std::string_view>> LineReader::next() {
  for (;;) {
    TERRACE_ASSIGN(auto line, next_line());
    if (!line) return std::nullopt;
    if (line_ == 1) {
      if (const std::string other = other_form(*line); !other.empty()) return wrong(other);
      if (line->starts_with(byte_order_mark)) line->remove_prefix(byte_order_mark.size());
    }
    const std::size_t last = line->find_last_not_of(blanks);
    if (last != std::string_view::npos) return line->substr(0, last + 1);
  }
}

}  // namespace terrace::tuning
