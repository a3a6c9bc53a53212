#include "run/turns_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "run/token_list.hpp"
#include "terrace/core/input_file.hpp"
#include "terrace/core/json_text.hpp"

namespace terrace::apps {
namespace {

using nlohmann::json;

constexpr std::size_t byte_vocabulary = 256;
// Ids are at most 11 characters each: prompts of some million tokens.
constexpr std::size_t file_bytes_max = std::size_t{64} << 20;

/// Throws json::exception where a turn is neither a text nor a list of ids.
Turn read_turn(const json& turn) {
  if (!turn.is_string()) return token_list(turn);
  Turn tokens;
  for (const char c : turn.get_ref<const std::string&>()) {
    tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  }
  return tokens;
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
  TERRACE_ASSIGN(const std::string text, input.read_whole(file_bytes_max));
  if (const std::string_view flaw = flaw_of_json_text(text); !flaw.empty()) {
    return fail(Errc::invalid_argument, "{}: is no JSON: {}", file, flaw);
  }
  std::vector<Turn> turns;
  try {
    const json document = json::parse(text);
    for (const json& turn : document.get_ref<const json::array_t&>()) {
      const std::string place = fmt::format("{}: turn {}", file, turns.size() + 1);
      if (turn.is_string() && vocabulary != byte_vocabulary) {
        return fail(Errc::invalid_argument,
                    "{} is a text, and the model has {} tokens, not bytes: turn the text into ids "
                    "with tools/tokenize.py and give a list of them",
                    place, vocabulary);
      }
      turns.push_back(read_turn(turn));
      TERRACE_TRY(check_turn(turns.back(), place, vocabulary));
    }
  } catch (const json::parse_error& error) {
    return fail(Errc::invalid_argument, "{}: is no JSON, from byte {} on", file, error.byte);
  } catch (const json::exception& error) {
    return fail(Errc::invalid_argument, "{}: not a JSON list of texts, or of lists of ids ({})",
                file, error.what());
  }
  if (turns.empty()) return fail(Errc::invalid_argument, "{}: has no turn in its list", file);
  return turns;
}

}  // namespace terrace::apps
