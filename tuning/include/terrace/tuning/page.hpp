// Pages of HTML that need no script, no font and no network: readable on a phone, and in the dark.
#pragma once

#include <string>
#include <string_view>

namespace terrace::tuning {

/// How a page came to be. An empty text is not shown.
struct PageOrigin {
  std::string command;  ///< as one would type it, without passwords
  std::string build;    ///< version and commit of the program
  std::string date;     ///< of the page, with its time zone
  bool quick = false;   ///< figures say only that the command works
};

/// Returns text fit for HTML.
std::string escaped(std::string_view text);

/// Returns a whole page; `title` is text and becomes the heading, `body` is HTML.
std::string html_page(std::string_view title, const PageOrigin& origin, std::string_view body);

/// Returns drawings side by side, as many as the window is wide enough for.
std::string side_by_side(std::string_view drawings);

/// Returns a part of a page that the reader opens and closes; `summary` is text, `body` HTML.
std::string folded(std::string_view summary, std::string_view body, bool open = false);

/// Returns a table that scrolls by itself if it is wider than the window. `head` and `rows` are
/// elements <tr>; the first `word_columns`, at most two, are words, all others are numbers.
std::string table(std::string_view head, std::string_view rows, int word_columns = 2);

/// Returns text with its lines as they are: a config.
std::string preformatted(std::string_view text);

}  // namespace terrace::tuning
