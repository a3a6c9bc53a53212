#include "fuzz/mutation.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
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

/// Replaces the number that begins behind a random place, if there is one.
void replace_number(std::string& text, Rng& rng) {
  const auto from = text.begin() + static_cast<std::ptrdiff_t>(rng.below(text.size()));
  const auto begin = std::find_if(from, text.end(), is_digit);
  const auto end = std::find_if_not(begin, text.end(), is_digit);
  if (begin != text.end()) text.replace(begin, end, any_token(rng));
}

void edit(std::string& text, const std::vector<std::string>& corpus, Rng& rng) {
  constexpr std::string_view meaningful = "{}[]\",:0123456789-e\\\n\0\x7f\xff \t"sv;
  constexpr std::size_t longest = 4096;
  if (text.empty()) text = any_token(rng);
  const auto place = [&] { return static_cast<std::size_t>(rng.below(text.size())); };
  switch (rng.below(9)) {
    case 0:
      text[place()] = static_cast<char>(rng.below(256));
      return;
    case 1:
      text[place()] = meaningful[rng.below(meaningful.size())];
      return;
    case 2:
      text.erase(place(), 1 + rng.below(16));
      return;
    case 3:
      text.insert(place(), text.substr(place(), 1 + rng.below(64)));
      return;
    case 4:
      text.resize(place());
      return;
    case 5:
      text.insert(place(), any_token(rng));
      return;
    case 6:
      replace_number(text, rng);
      return;
    case 7: {
      const std::string& other = corpus[rng.below(corpus.size())];
      if (!other.empty())
        text.replace(place(), rng.below(32), other.substr(rng.below(other.size()), 64));
      return;
    }
    default: {
      const std::string piece = text.substr(place(), 1 + rng.below(8));
      const std::size_t times = std::min<std::size_t>(rng.below(200), longest / piece.size());
      std::string repeated;
      for (std::size_t i = 0; i < times; ++i) repeated += piece;
      text.insert(place(), repeated);
    }
  }
}

}  // namespace

std::string mutate(const std::vector<std::string>& corpus, Rng& rng) {
  std::string text = corpus[rng.below(corpus.size())];
  for (std::uint64_t edits = rng.below(5); edits > 0; --edits) edit(text, corpus, rng);
  return text;
}

std::vector<std::string> read_corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TERRACE_FUZZ_CORPUS "/" + folder)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return texts;
}

}  // namespace terrace
