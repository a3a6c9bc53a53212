#include "fuzz/yaml_reference.hpp"

#include <fmt/core.h>
#include <yaml.h>

namespace terrace {
namespace {

bool is_one_of(char c, std::string_view characters) {
  return characters.find(c) != std::string_view::npos;
}

/// Nothing but blanks, comments and ends of documents: YAML, though libyaml takes no blank line
/// with a tab before the first value, and no second end.
bool has_no_content(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  while (!text.empty()) {
    const std::size_t end = text.find_first_of("\r\n");
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with("...") || line.starts_with("---")) line.remove_prefix(3);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] != '#') return false;
  }
  return true;
}

bool begins_a_word_in_brackets(std::string_view text, std::size_t at) {
  const std::size_t last = text.substr(0, at).find_last_not_of(" \t\r\n");
  const bool is_begin = last != std::string_view::npos && is_one_of(text[last], "[{,:");
  return is_begin && at + 1 < text.size() && !is_one_of(text[at + 1], " \t\r\n[]{},");
}

/// Spells as libyaml wants it what YAML 1.2 lets be: words in brackets that begin with a colon, and
/// tabs in lines that are blank.
std::string in_yaml_1_1(std::string_view text) {
  std::string spelled(text);
  std::size_t line = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':' && begins_a_word_in_brackets(text, i)) spelled[i] = 'x';
    if (text[i] == '\t' && text.find_first_not_of(" \t", line) == text.find_first_of("\r\n", i)) {
      spelled[i] = ' ';
    }
    if (text[i] == '\n') line = i + 1;
  }
  return spelled;
}

}  // namespace

std::string yaml_error(std::string_view as_written) {
  if (has_no_content(as_written)) return {};
  const std::string text = in_yaml_1_1(as_written);
  yaml_parser_t parser;
  if (yaml_parser_initialize(&parser) == 0) return "no memory";
  yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
  std::string error;
  for (bool ended = false; !ended && error.empty();) {
    yaml_event_t event;
    if (yaml_parser_parse(&parser, &event) == 0) {
      error = fmt::format("line {}: {}", parser.problem_mark.line + 1, parser.problem);
    } else {
      ended = event.type == YAML_STREAM_END_EVENT;
      yaml_event_delete(&event);
    }
  }
  yaml_parser_delete(&parser);
  return error;
}

}  // namespace terrace
