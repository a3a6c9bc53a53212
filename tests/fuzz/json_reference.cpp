#include "fuzz/json_reference.hpp"

#include <cstddef>
#include <vector>

namespace terrace {
namespace {

class Judge {
 public:
  explicit Judge(std::string_view text) : text_(text) {}

  bool whole_text() {
    skip_blanks();
    return value() && at_ == text_.size();
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_blanks() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }

  /// Reads a value with everything in it: `open_` holds the brackets around the place.
  bool value() {
    while (true) {
      if (take('{')) {
        skip_blanks();
        open_.push_back('}');
        if (!take('}')) {
          if (!key()) return false;
          continue;
        }
        open_.pop_back();
      } else if (take('[')) {
        skip_blanks();
        open_.push_back(']');
        if (!take(']')) continue;
        open_.pop_back();
      } else if (!scalar()) {
        return false;
      }
      skip_blanks();
      while (!open_.empty() && take(open_.back())) {
        open_.pop_back();
        skip_blanks();
      }
      if (open_.empty()) return true;
      if (!take(',')) return false;
      skip_blanks();
      if (open_.back() == '}' && !key()) return false;
    }
  }

  bool key() {
    if (!string()) return false;
    skip_blanks();
    if (!take(':')) return false;
    skip_blanks();
    return true;
  }

  bool scalar() {
    if (peek() == '"') return string();
    return take("true") || take("false") || take("null") || number();
  }

  bool digits() {
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > begin;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool hex(unsigned& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const std::size_t digit =
          std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
      const bool letter_or_digit =
          (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!letter_or_digit || digit == std::string_view::npos) return false;
      unit = unit * 16 + static_cast<unsigned>(digit);
    }
    return true;
  }

  bool escape() {
    if (take('u')) {
      unsigned unit = 0;
      if (!hex(unit)) return false;
      if (unit >= 0xdc00 && unit <= 0xdfff) return false;  // half a pair
      if (unit < 0xd800 || unit > 0xdbff) return true;
      return take("\\u") && hex(unit) && unit >= 0xdc00 && unit <= 0xdfff;
    }
    if (at_ == text_.size() ||
        std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos)
      return false;
    ++at_;
    return true;
  }

  bool string() {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      if (take('"')) return true;
      if (take('\\')) {
        if (!escape()) return false;
      } else if (!character()) {
        return false;
      }
    }
    return false;
  }

  /// One character in UTF-8, in its shortest form, no control and no half of a pair.
  bool character() {
    const auto byte = [&](std::size_t i) {
      return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0U;
    };
    const unsigned first = byte(0);
    if (first < 0x20) return false;
    const std::size_t more = first < 0x80   ? 0
                             : first < 0xc2 ? 9
                             : first < 0xe0 ? 1
                             : first < 0xf0 ? 2
                             : first < 0xf5 ? 3
                                            : 9;
    if (more == 9) return false;
    for (std::size_t i = 1; i <= more; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return false;
    }
    if (first == 0xe0 && byte(1) < 0xa0) return false;
    if (first == 0xed && byte(1) > 0x9f) return false;
    if (first == 0xf0 && byte(1) < 0x90) return false;
    if (first == 0xf4 && byte(1) > 0x8f) return false;
    at_ += 1 + more;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<char> open_;
};

}  // namespace

bool is_json(std::string_view text) { return Judge(text).whole_text(); }

}  // namespace terrace
