// Flaws of a text that nlohmann-json overlooks: to be refused before it parses the text.
#pragma once

#include <string_view>

namespace terrace {

/// Names a byte that JSON forbids and that nlohmann-json accepts: a byte order mark, or a zero
/// byte, where its reading ends. Empty if the text has neither.
[[nodiscard]] constexpr std::string_view flaw_of_json_text(std::string_view text) noexcept {
  if (text.starts_with("\xef\xbb\xbf")) return "a byte order mark stands before it; take it out";
  if (text.find('\0') != std::string_view::npos) return "it has a zero byte";
  return {};
}

}  // namespace terrace
