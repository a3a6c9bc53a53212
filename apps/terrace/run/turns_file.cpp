#include "run/turns_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "run/token_list.hpp"
#include "run/token_text.hpp"
#include "terrace/core/input_file.hpp"
#include "terrace/core/json_text.hpp"

namespace terrace::apps {
namespace {

using nlohmann::json;

// Ids are at most 11 characters each: prompts of some million tokens.
constexpr std::size_t turns_bytes_max = std::size_t{64} << 20;

Turn tokens_of(const std::string& text) {
  Turn tokens;
  for (const char c : text) tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  return tokens;
}

/// Reads a turn that messages call `place`.
Result<Turn> read_turn(const json& turn, const std::string& place, std::size_t vocabulary) {
  if (turn.is_string()) {
    if (vocabulary == byte_vocabulary) return tokens_of(turn.get_ref<const std::string&>());
    return fail(Errc::invalid_argument,
                "{} is a text, and the model has {} tokens, not bytes: turn the text into ids with "
                "tools/tokenize.py and give a list of them",
                place, vocabulary);
  }
  try {
    return token_list(turn);
  } catch (const json::exception&) {
    return fail(Errc::invalid_argument, "{} is neither a text nor a list of ids", place);
  }
}

/// Parses a list.
Result<json> parse_list(const std::string& text, const std::string& file) {
  if (const std::string_view flaw = flaw_of_json_text(text); !flaw.empty()) {
    return fail(Errc::invalid_argument, "{}: is no JSON: {}", file, flaw);
  }
  try {
    json document = json::parse(text);
    if (document.is_array()) return document;
  } catch (const json::parse_error& error) {
    return fail(Errc::invalid_argument, "{}: is no JSON, from byte {} on", file, error.byte);
  } catch (const json::exception& error) {  // as a number beyond all bounds
    return fail(Errc::invalid_argument, "{}: is no JSON ({})", file, error.what());
  }
  return fail(Errc::invalid_argument, "{}: is no list of texts, or of lists of ids", file);
}

Status check_turn(const Turn& turn, const std::string& place, std::size_t vocabulary) {
  if (turn.empty()) return fail(Errc::invalid_argument, "{} has no tokens", place);
  const auto outside =
      std::ranges::find_if(turn, [&](TokenId id) { return index(id) >= vocabulary; });
  if (outside == turn.end()) return {};
  return fail(Errc::invalid_argument, "{}: token {} is outside the model's vocabulary of {}", place,
              index(*outside), vocabulary);
}

}  // namespace

Result<std::vector<Turn>> read_turns_file(const std::string& path, std::size_t vocabulary) {
  TERRACE_ASSIGN(InputFile input, InputFile::open_named(path));
  const std::string& file = input.name();
  TERRACE_ASSIGN(const std::string text, input.read_whole(turns_bytes_max));
  TERRACE_ASSIGN(const json list, parse_list(text, file));
  if (list.empty()) return fail(Errc::invalid_argument, "{}: has no turn in its list", file);
  std::vector<Turn> turns;
  for (const json& turn : list) {
    const std::string place = fmt::format("{}: turn {}", file, turns.size() + 1);
    TERRACE_ASSIGN(Turn tokens, read_turn(turn, place, vocabulary));
    TERRACE_TRY(check_turn(tokens, place, vocabulary));
    turns.push_back(std::move(tokens));
  }
  return turns;
}

}  // namespace terrace::apps
