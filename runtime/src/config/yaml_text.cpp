#include "yaml_text.hpp"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <vector>

namespace terrace {
namespace {

using YAML::anchor_t;
using YAML::Mark;
using Style = YAML::EmitterStyle::value;

/// Sees what yaml-cpp makes of a text: finds what a file of settings has no use for, and values
/// that YAML has further to the right.
class Documents final : public YAML::EventHandler {
 public:
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] const Mark& begin() const noexcept { return begin_; }  ///< of the last one

  /// The first flaw of the text, and its place; empty where there is none.
  [[nodiscard]] std::string_view flaw() const noexcept { return flaw_; }
  [[nodiscard]] const Mark& flaw_mark() const noexcept { return flaw_mark_; }

  void OnDocumentStart(const Mark& mark) override {
    begin_ = mark;
    ++count_;
  }
  void OnDocumentEnd() override {}
  void OnNull(const Mark& mark, anchor_t anchor) override {
    look_for_names(mark, "?", anchor);
    if (!levels_.empty()) levels_.back().key_next = !levels_.back().key_next;
  }
  void OnAlias(const Mark& mark, anchor_t anchor) override { look_at(mark, "?", anchor); }
  void OnScalar(const Mark& mark, const std::string& tag, anchor_t anchor,
                const std::string& /*value*/) override {
    look_at(mark, tag, anchor);
  }
  void OnSequenceStart(const Mark& mark, const std::string& tag, anchor_t anchor,
                       Style style) override {
    look_at(mark, tag, anchor, style == YAML::EmitterStyle::Block);
    levels_.push_back({style == YAML::EmitterStyle::Block, /*map=*/false, mark.column});
  }
  void OnSequenceEnd() override { levels_.pop_back(); }
  void OnMapStart(const Mark& mark, const std::string& tag, anchor_t anchor, Style style) override {
    look_at(mark, tag, anchor);
    levels_.push_back({style == YAML::EmitterStyle::Block, /*map=*/true, mark.column});
  }
  void OnMapEnd() override { levels_.pop_back(); }

 private:
  struct Level {
    bool block;  ///< not in brackets
    bool map;
    int column;
    bool key_next = true;
  };

  void look_for_names(const Mark& mark, const std::string& tag, anchor_t anchor) {
    // Values without a tag have "?" for one, or "!" where they are quoted.
    if (anchor == YAML::NullAnchor && (tag.empty() || tag == "?" || tag == "!")) return;
    complain(
        mark,
        "tags, anchors and aliases have no meaning here; leave out what begins with !, & or *");
  }

  void look_at(const Mark& mark, const std::string& tag, anchor_t anchor,
               bool is_block_sequence = false) {
    look_for_names(mark, tag, anchor);
    if (levels_.empty()) return;
    Level& in = levels_.back();
    const bool is_key = in.map && in.key_next;
    const int least = in.column + (is_key || (in.map && is_block_sequence) ? 0 : 1);
    if (in.block && mark.column < least) {
      complain(mark, "this value belongs further to the right than its key; indent it");
    }
    in.key_next = !in.key_next;
  }

  void complain(const Mark& mark, std::string_view flaw) {
    if (!flaw_.empty()) return;
    flaw_ = flaw;
    flaw_mark_ = mark;
  }

  int count_ = 0;
  Mark begin_;
  std::string_view flaw_;
  Mark flaw_mark_;
  std::vector<Level> levels_;
};

/// Bytes of the character that begins a text; 0 where it is none that YAML has. yaml-cpp takes any
/// bytes.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) {
    // To YAML a single CR ends a line, to yaml-cpp it does not.
    const bool blank = first == '\t' || first == '\n' || text.starts_with("\r\n");
    return blank || (first >= 0x20 && first != 0x7f) ? 1 : 0;
  }
  const std::size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes == 0 || first > 0xf4 || bytes > text.size()) return 0;
  std::uint32_t code = first & (0x7fU >> bytes);
  for (const char c : text.substr(1, bytes - 1)) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return 0;
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3fU);
  }
  const bool shortest = code >= (bytes == 2 ? 0x80U : bytes == 3 ? 0x800U : 0x10000U);
  const bool control = code < 0xa0 && code != 0x85;
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  const bool none = surrogate || code == 0xfeff || code == 0xfffe || code == 0xffff;
  return shortest && !control && !none && code <= 0x10ffff ? bytes : 0;
}

/// The line, from 1, of the first byte that is of no character that YAML has.
std::optional<std::ptrdiff_t> line_of_no_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) return 1 + std::ranges::count(text.substr(0, at), '\n');
    at += bytes;
  }
  return std::nullopt;
}

/// Returns the flaw of a line beside its words, which yaml-cpp takes in places where YAML does not;
/// empty where there is none.
std::string_view flaw_of_line(std::string_view line) {
  if (line.starts_with('%')) return "directives have no meaning here; take the line out";
  const std::size_t end = std::min(line.find_first_not_of(" \t-"), line.size());
  const std::string_view rest = line.substr(end);
  if (rest.empty()) return {};
  if (line.substr(0, end).find('\t') != std::string_view::npos) {
    return "this line is indented with a tab; use blanks";
  }
  if (rest == "?" || rest.starts_with("? ") || rest.starts_with("?\t")) {
    return "a key needs no question mark; write KEY: VALUE";
  }
  return {};
}

Status check_lines(std::string_view text, std::string_view name) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const std::string_view flaw = flaw_of_line(line); !flaw.empty()) {
      return fail(Errc::invalid_argument, "{}:{}: {}", name, number, flaw);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

}  // namespace

std::string yaml_place(std::string_view name, const Mark& mark) {
  return mark.is_null() ? std::string(name) : fmt::format("{}:{}", name, mark.line + 1);
}

Result<YAML::Node> read_yaml(std::string_view text, std::string_view name) try {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  if (text.find('\0') != std::string_view::npos) {
    return fail(Errc::invalid_argument, "{}: has zero bytes; is this a text file?", name);
  }
  if (const auto line = line_of_no_text(text)) {
    return fail(Errc::invalid_argument,
                "{}:{}: has control characters, or bytes that are no UTF-8; is this a text file?",
                name, *line);
  }
  TERRACE_TRY(check_lines(text, name));
  const std::string copy(text);
  // A quoted value without an end ends where yaml-cpp's text does; this mark may not be in one.
  std::istringstream stream(copy + "\n...\n");
  YAML::Parser parser(stream);
  Documents documents;
  // One document more than there may be, and no further: of some texts yaml-cpp finds no end.
  while (documents.count() < 2 && parser.HandleNextDocument(documents)) {
  }
  if (documents.count() > 1) {
    return fail(Errc::invalid_argument, "{}: a second document starts here; keep one",
                yaml_place(name, documents.begin()));
  }
  if (!documents.flaw().empty()) {
    return fail(Errc::invalid_argument, "{}: {}", yaml_place(name, documents.flaw_mark()),
                documents.flaw());
  }
  return YAML::Load(copy);
} catch (const YAML::Exception& error) {  // yaml-cpp reports all bad input so
  return fail(Errc::invalid_argument, "{}: this is no YAML: {}", yaml_place(name, error.mark),
              error.msg);
}

}  // namespace terrace
