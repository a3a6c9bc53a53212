// Planted facts: statements hidden in the context, asked for, scored digit by digit.
//
//   TERRACE_ASSIGN(auto needles, make_needles(20, seed));
//   TERRACE_ASSIGN(auto tokens, plant_needles(needles, text, context));
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "run/needle_form.hpp"
#include "terrace/core/ids.hpp"
#include "terrace/core/result.hpp"

namespace terrace::apps {

struct Needle {
  double depth = 0;                ///< where in the context, as a share of it
  std::vector<TokenId> statement;  ///< as planted
  std::vector<TokenId> question;
  std::vector<TokenId> answer;
  std::vector<bool> answer_is_digit = {};  ///< one for each token of the answer
};

/// The place of a question.
enum class AskedAt : std::uint8_t {
  after,   ///< after the scored text, when the policy has chosen
  prompt,  ///< at the prompt's end, so that the policy sees it
};

/// Returns the word that options and JSON have for it.
[[nodiscard]] std::string_view to_string(AskedAt place) noexcept;

/// The score of a run for one needle.
struct NeedleScore {
  double depth = 0;
  std::size_t digits = 0;
  std::size_t right = 0;
};

/// Makes `count` facts with distinct names, whose tokens are bytes, at evenly spread depths.
/// Errors: invalid_argument: more facts than the form has names.
Result<std::vector<Needle>> make_needles(std::size_t count, std::uint64_t seed,
                                         const NeedleForm& form = trained_needle_form());

/// Returns how many of `context` tokens the statements leave for text.
/// Errors: invalid_argument: they leave less than a token each.
Result<std::size_t> room_beside(std::span<const Needle> needles, std::size_t context);

/// Returns `text` with the statements in its first `context` tokens.
/// Errors: those of room_beside.
Result<std::vector<TokenId>> plant_needles(std::span<const Needle> needles,
                                           std::span<const TokenId> text, std::size_t context);

/// Reads the side file of tools/tokenize.py, whose statements are already in the tokens.
///
/// Errors   io_error: no such file; corrupt: not such a file; invalid_argument: made for another
///          context or vocabulary
Result<std::vector<Needle>> read_needles_file(const std::filesystem::path& path,
                                              std::size_t context, std::size_t vocabulary);

/// Checks that a side file goes with the tokens: each statement has to be in `context`.
/// Errors: invalid_argument: one is not, naming the file and where it was planted.
Status check_planted(std::span<const Needle> needles, std::span<const TokenId> context,
                     const std::filesystem::path& file);

}  // namespace terrace::apps
