#include "fuzz/mutation.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace terrace {
namespace {

using namespace std::string_view_literals;

/// Texts at which parsers stumble.
constexpr std::array tokens{"0"sv,
                            "-0"sv,
                            "-1"sv,
                            "1e999"sv,
                            "1e-999"sv,
                            "1.5"sv,
                            "0x10"sv,
                            "+1"sv,
                            "01"sv,
                            "1."sv,
                            ".5"sv,
                            "NaN"sv,
                            "Infinity"sv,
                            "null"sv,
                            "true"sv,
                            "~"sv,
                            "\"\""sv,
                            "[]"sv,
                            "{}"sv,
                            "[[[["sv,
                            "{\"a\":"sv,
                            "},{"sv,
                            ",,"sv,
                            ":"sv,
                            ": "sv,
                            "- "sv,
                            "? "sv,
                            "| "sv,
                            "> "sv,
                            "%YAML 1.1\n"sv,
                            "---\n"sv,
                            "...\n"sv,
                            "&a "sv,
                            "*a"sv,
                            "<<: "sv,
                            "!!int "sv,
                            "\t"sv,
                            "\r\n"sv,
                            "\n\n"sv,
                            "#"sv,
                            " # "sv,
                            "\\u0000"sv,
                            "\\ud800"sv,
                            "\\x"sv,
                            "\xff"sv,
                            "\xc0\x80"sv,
                            "\xef\xbb\xbf"sv,
                            "\x7f"sv,
                            "'"sv,
                            "\""sv,
                            "/*"sv,
                            "//"sv,
                            "18446744073709551615"sv,
                            "18446744073709551616"sv,
                            "9223372036854775808"sv,
                            "4294967296"sv,
                            "1000000000000"sv,
                            "1e308"sv,
                            "1024.0"sv};

std::string_view any_token(Rng& rng) { return tokens[rng.below(tokens.size())]; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Replaces the first number that begins after a random place, if there is one.
void replace_number(std::string& text, Rng& rng) {
  const auto from = text.begin() + static_cast<std::ptrdiff_t>(rng.below(text.size()));
  const auto begin = std::find_if(from, text.end(), is_digit);
  const auto end = std::find_if_not(begin, text.end(), is_digit);
  if (begin != text.end()) text.replace(begin, end, any_token(rng));
}

/// Puts a line, with its end, elsewhere too: keys that come twice, other indents.
void repeat_line(std::string& text, Rng& rng) {
  const auto line_at = [&](std::size_t place) {
    const std::size_t end = text.rfind('\n', place);
    return end == std::string::npos ? 0 : end + 1;
  };
  const std::size_t begin = line_at(rng.below(text.size()));
  const std::string line = text.substr(begin, text.find('\n', begin) - begin) + '\n';
  text.insert(line_at(rng.below(text.size())), line);
}

/// Repeats a piece up to 200 times, or some thousand times where that is what a reader may stumble
/// at: depth, length.
void repeat_piece(std::string& text, Rng& rng) {
  const std::size_t longest = rng.below(256) == 0 ? std::size_t{1} << 16 : std::size_t{1} << 11;
  const std::size_t from = rng.below(text.size());
  const std::string piece = text.substr(from, 1 + rng.below(8));
  const std::size_t most = longest == std::size_t{1} << 16 ? longest : 200;
  const std::size_t times = std::min<std::size_t>(rng.below(most), longest / piece.size());
  std::string repeated;
  for (std::size_t i = 0; i < times; ++i) repeated += piece;
  text.insert(rng.below(text.size()), repeated);
}

/// Edits beside a character that holds an input together, where grammars are at their weakest.
void edit_structure(std::string& text, Rng& rng) {
  constexpr std::string_view structure = "{}[],:\"'\n";
  const std::size_t at = text.find_first_of(structure, rng.below(text.size()));
  if (at == std::string::npos) return;
  const char other = structure[rng.below(structure.size())];
  switch (rng.below(4)) {
    case 0:
      text.erase(at, 1);
      return;
    case 1:
      text[at] = other;
      return;
    case 2:
      text.insert(at, 1, rng.below(2) == 0 ? ',' : other);
      return;
    default:
      text.insert(at + rng.below(2), any_token(rng));
  }
}

void insert_piece_of_another(std::string& text, const Corpus& corpus, Rng& rng) {
  const std::string& other = corpus[rng.below(corpus.size())].text;
  if (other.empty()) return;
  const std::size_t to = rng.below(text.size());
  const std::size_t over = rng.below(32);
  text.replace(to, over, other, rng.below(other.size()), 64);
}

}  // namespace

void edit(std::string& text, const Corpus& corpus, Rng& rng) {
  constexpr std::string_view meaningful = "{}[]\",:0123456789-e\\\n\0\x7f\xff \t"sv;
  if (text.empty()) text = any_token(rng);
  const std::size_t place = rng.below(text.size());
  switch (rng.below(12)) {
    case 0:
      text[place] = static_cast<char>(rng.below(256));
      return;
    case 1:
      text[place] = meaningful[rng.below(meaningful.size())];
      return;
    case 2:
      text.erase(place, 1 + rng.below(16));
      return;
    case 3: {
      const std::size_t from = rng.below(text.size());
      text.insert(place, text.substr(from, 1 + rng.below(64)));
      return;
    }
    case 4:
      text.resize(place);
      return;
    case 5:
      text.insert(place, any_token(rng));
      return;
    case 6:
      replace_number(text, rng);
      return;
    case 7:
      insert_piece_of_another(text, corpus, rng);
      return;
    case 8:
      repeat_line(text, rng);
      return;
    case 9:
      repeat_piece(text, rng);
      return;
    default:
      edit_structure(text, rng);
  }
}

std::string mutate(const Corpus& corpus, Rng& rng) {
  std::string text = corpus[rng.below(corpus.size())].text;
  for (std::uint64_t edits = rng.below(5); edits > 0; --edits) edit(text, corpus, rng);
  return text;
}

}  // namespace terrace
