#include "run/needle_options.hpp"

#include <CLI/Validators.hpp>

namespace terrace::apps {
namespace {

constexpr std::string_view help = R"(Needles (--needles):
  Facts, each of a thing with a name and 4 to 6 digits, are planted in the context at evenly spread
  depths. The true answer is fed; a digit of it is right when it was the likeliest token.
  --needles-asked after     the questions follow one after another after the scored text: the
                            policy has chosen without them
  --needles-asked prompt    each question ends a prompt of its own, the context and the question:
                            the policy sees it before it chooses, and no text is between. The
                            context is computed once more per policy, and each prompt's choice or
                            index is made again; if device memory does not hold two sequences,
                            the context, too, is computed for each question
  --needles-form FORM       trained: as the bundled model was trained to answer; plain: wording
                            and words that it was not trained on; or FACT or FACT|QUESTION,
                            sentences with {adjective}, {noun} and {digits} in them, the question
                            asked up to its digits, about the things of plain
)";

}  // namespace

std::string_view needle_help() noexcept { return help; }

void add_needle_options(CLI::App& command, const char* meaning, RunOptions& options) {
  CLI::Option* const needles = add_count(command, "--needles", options.needles, meaning);
  CLI::Option* const file = command
                                .add_option("--needles-file", options.needles_file,
                                            "facts that tools/tokenize.py planted; or -")
                                ->excludes(needles)
                                ->option_text("FILE");
  command
      .add_option("--needles-asked", options.needles_asked,
                  "questions after the text, or each in a prompt, which the policy sees [after]")
      ->check(CLI::IsMember({"after", "prompt"}))
      ->option_text("after|prompt");
  command
      .add_option(
          "--needles-form", options.needles_form,
          "wording: trained, plain, or like 'The {adjective} {noun} has {digits}.' [trained]")
      ->excludes(file)
      ->option_text("FORM");
}

}  // namespace terrace::apps
