#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "run/needles.hpp"
#include "run/token_list.hpp"
#include "terrace/core/input_file.hpp"
#include "terrace/core/json_text.hpp"

namespace terrace::apps {
namespace {

using nlohmann::json;

// A needle has a hundred tokens or so, and a context of a million holds some thousands of them.
constexpr std::size_t file_bytes_max = std::size_t{64} << 20;

/// Throws json::exception where a key is missing or of another type.
Needle read_needle(const json& object) {
  return {.depth = object.at("depth").get<double>(),
          .statement = token_list(object.at("statement")),
          .question = token_list(object.at("question")),
          .answer = token_list(object.at("answer")),
          .answer_is_digit = object.at("answer_is_digit").get<std::vector<bool>>()};
}

Status check_needle(const Needle& needle, const std::string& file, std::size_t vocabulary) {
  if (!(needle.depth >= 0 && needle.depth <= 1)) {
    return fail(Errc::corrupt, "{}: a needle has depth {}; a share from 0 to 1 is needed", file,
                needle.depth);
  }
  if (needle.question.empty() || needle.answer.size() != needle.answer_is_digit.size()) {
    return fail(Errc::corrupt, "{}: a needle needs a question, and answer_is_digit for each token",
                file);
  }
  for (const auto* const ids : {&needle.statement, &needle.question, &needle.answer}) {
    const auto outside =
        std::ranges::find_if(*ids, [&](TokenId id) { return index(id) >= vocabulary; });
    if (outside == ids->end()) continue;
    return fail(
        Errc::invalid_argument,
        "{}: token {} is outside the model's vocabulary of {}; make the file for this model", file,
        index(*outside), vocabulary);
  }
  return {};
}

}  // namespace

Result<std::vector<Needle>> read_needles_file(const std::filesystem::path& path,
                                              std::size_t context, std::size_t vocabulary) {
  TERRACE_ASSIGN(InputFile input, InputFile::open_named(path));
  const std::string& file = input.name();
  TERRACE_ASSIGN(const std::string text, input.read_whole(file_bytes_max));
  if (const std::string_view flaw = flaw_of_json_text(text); !flaw.empty()) {
    return fail(Errc::corrupt, "{}: is no JSON: {}", file, flaw);
  }
  std::vector<Needle> needles;
  std::size_t made_for = 0;
  try {
    const json document = json::parse(text);
    if (whole_number(document.at("version")) != 1) {
      return fail(Errc::unsupported, "{}: version is not 1; make it with tools/tokenize.py", file);
    }
    made_for = whole_number(document.at("context_tokens"));
    for (const json& needle : document.at("needles").get_ref<const json::array_t&>()) {
      needles.push_back(read_needle(needle));
    }
  } catch (const json::exception& error) {
    return fail(Errc::corrupt, "{}: not a needles file of tools/tokenize.py ({})", file,
                error.what());
  }
  if (made_for != context) {
    return fail(Errc::invalid_argument, "{}: made for a context of {}; give --context {}", file,
                made_for, made_for);
  }
  for (const Needle& needle : needles) TERRACE_TRY(check_needle(needle, file, vocabulary));
  return needles;
}

Status check_planted(std::span<const Needle> needles, std::span<const TokenId> context,
                     const std::filesystem::path& file) {
  for (const Needle& needle : needles) {
    if (!std::ranges::search(context, needle.statement).empty()) continue;
    return fail(Errc::invalid_argument,
                "{}: its statement at depth {} is not in the context; give the --tokens that were "
                "made with it",
                file.string(), needle.depth);
  }
  return {};
}

}  // namespace terrace::apps
