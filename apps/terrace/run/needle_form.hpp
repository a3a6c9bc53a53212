// The wording of planted facts, and the words that name the things they are about.
//
//   TERRACE_ASSIGN(const NeedleForm form, parse_needle_form("The {adjective} {noun} has
//   {digits}."));
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace::apps {

/// Each of the two sentences has {adjective}, {noun} and {digits} once.
struct NeedleForm {
  std::string name;      ///< as users give it
  std::string fact;      ///< the sentence that is planted, on a line of its own
  std::string question;  ///< the sentence that asks, as far as to its digits
  std::span<const std::string_view> adjectives;
  std::span<const std::string_view> nouns;
};

/// Returns the form with the wording and the words of the bundled model's training.
const NeedleForm& trained_needle_form();

/// Reads `trained`, `plain`, or a form of the user's own with the words of `plain`: FACT, which is
/// also the question, or FACT|QUESTION.
/// Errors: invalid_argument: the text is not such a form; the message says what is missing or too
/// much.
Result<NeedleForm> parse_needle_form(const std::string& text);

}  // namespace terrace::apps
