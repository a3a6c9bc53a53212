#include "run/needle_options.hpp"

#include <CLI/Validators.hpp>

namespace terrace::apps {

void add_needle_options(CLI::App& command, const char* meaning, RunOptions& options) {
  CLI::Option* const needles = add_count(command, "--needles", options.needles, meaning);
  CLI::Option* const file = command
                                .add_option("--needles-file", options.needles_file,
                                            "facts that tools/tokenize.py planted; or -")
                                ->excludes(needles)
                                ->option_text("FILE");
  command
      .add_option("--needles-asked", options.needles_asked,
                  "questions behind the text, or each in a prompt, which the policy sees [after]")
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
