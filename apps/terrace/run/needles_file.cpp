#include <algorithm>
#include <nlohmann/json.hpp>

#include "run/input.hpp"
#include "run/needles.hpp"

namespace terrace::apps {
namespace {

using nlohmann::json;

// A needle has a hundred tokens or so, and a context of a million holds some thousands of them.
constexpr std::size_t file_bytes_max = std::size_t{64} << 20;

std::vector<TokenId> read_ids(const json& list) {
  std::vector<TokenId> ids;
  for (const json& id : list) ids.push_back(TokenId{id.get<std::uint32_t>()});
  return ids;
}

/// Throws json::exception where a key is missing or of another type.
Needle read_needle(const json& object) {
  return {.depth = object.at("depth").get<double>(),
          .statement = read_ids(object.at("statement")),
          .question = read_ids(object.at("question")),
          .answer = read_ids(object.at("answer")),
          .answer_is_digit = object.at("answer_is_digit").get<std::vector<bool>>()};
}

Status check_needle(const Needle& needle, const std::string& file, std::size_t vocabulary) {
  if (needle.question.empty() || needle.answer.size() != needle.answer_is_digit.size()) {
    return fail(Errc::corrupt, "{}: a needle needs a question, and answer_is_digit for each token",
                file);
  }
  for (const auto* const ids : {&needle.question, &needle.answer}) {
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
  const std::string file = path.string();
  TERRACE_ASSIGN(const std::string text, read_whole_input(file, file_bytes_max));
  std::vector<Needle> needles;
  std::size_t made_for = 0;
  try {
    const json document = json::parse(text);
    if (document.at("version").get<int>() != 1) {
      return fail(Errc::unsupported, "{}: version is not 1; make it with tools/tokenize.py", file);
    }
    made_for = document.at("context_tokens").get<std::size_t>();
    for (const json& needle : document.at("needles")) needles.push_back(read_needle(needle));
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
