#include "run/needle_form.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace terrace::apps {
namespace {

using Words = std::array<std::string_view, 30>;

constexpr Words trained_adjectives{"amber",  "brisk",  "calm",   "dusty",   "eager", "faint",
                                   "gentle", "hollow", "icy",    "jolly",   "keen",  "lucid",
                                   "mellow", "narrow", "olive",  "proud",   "quiet", "rusty",
                                   "silent", "tidy",   "urban",  "vivid",   "wary",  "young",
                                   "zesty",  "bitter", "clever", "distant", "early", "frozen"};
constexpr Words trained_nouns{"anchor", "bridge", "canyon",  "desert", "engine", "falcon",
                              "garden", "harbor", "island",  "jacket", "kettle", "lantern",
                              "meadow", "needle", "orchard", "pepper", "quarry", "river",
                              "saddle", "temple", "uncle",   "valley", "window", "yonder",
                              "zipper", "bakery", "cottage", "dragon", "forest", "glacier"};

// These words differ from all words above.
constexpr Words plain_adjectives{"ancient", "bright", "copper",  "damp",   "elegant", "fierce",
                                 "golden",  "humble", "ivory",   "jagged", "knotty",  "loyal",
                                 "marble",  "noble",  "orange",  "purple", "rapid",   "scarlet",
                                 "tender",  "unseen", "velvet",  "wooden", "yellow",  "brave",
                                 "cosmic",  "dainty", "emerald", "grassy", "secret",  "thick"};
constexpr Words plain_nouns{"apron",   "basket",   "cellar",  "drawer", "easel",  "fountain",
                            "gate",    "hammer",   "icebox",  "jar",    "kiosk",  "locker",
                            "mailbox", "notebook", "oven",    "pantry", "quiver", "radio",
                            "shutter", "trunk",    "urn",     "vault",  "wagon",  "cabinet",
                            "drum",    "fence",    "granary", "closet", "parcel", "tunnel"};

constexpr std::string_view trained_fact =
    "Note: the pass code of the {adjective} {noun} is {digits}.";
constexpr std::string_view trained_question =
    "Again: the pass code of the {adjective} {noun} is {digits}.";
constexpr std::string_view plain_fact = "The serial number of the {adjective} {noun} is {digits}.";

constexpr std::array<std::string_view, 3> placeholders{"{adjective}", "{noun}", "{digits}"};

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Checks that a user's sentence has each placeholder once. `what`: the sentence's name in
/// messages.
Status check_sentence(std::string_view what, std::string_view sentence) {
  for (const std::string_view one : placeholders) {
    const std::size_t count = count_of(sentence, one);
    if (count == 1) continue;
    return fail(Errc::invalid_argument,
                "--needles-form: the {} has {} {} times; {{adjective}}, {{noun}} and {{digits}} "
                "have to stand in it once each",
                what, one, count);
  }
  if (count_of(sentence, "{") + count_of(sentence, "}") == 2 * placeholders.size()) return {};
  return fail(Errc::invalid_argument,
              "--needles-form: braces of the {} have to stand around adjective, noun and digits "
              "alone",
              what);
}

Status check_question(std::string_view sentence) {
  TERRACE_TRY(check_sentence("question", sentence));
  const std::size_t asked = sentence.find("{digits}");
  if (sentence.find("{adjective}") < asked && sentence.find("{noun}") < asked) return {};
  return fail(
      Errc::invalid_argument,
      "--needles-form: the question ends before {{digits}}: {{adjective}} and {{noun}} have "
      "to stand before it, or in a question of their own, after '|'");
}

/// Checks what can be said of any text, so that messages may quote it.
Status check_text(const std::string& text) {
  if (std::ranges::any_of(text, [](unsigned char c) { return std::iscntrl(c) != 0; })) {
    return fail(Errc::invalid_argument,
                "--needles-form: has to be one line, without tabs and other control characters");
  }
  if (text.find_first_of("{}|") != text.npos) return {};
  constexpr std::size_t shown = 40;
  return fail(
      Errc::invalid_argument,
      "--needles-form '{}': is neither trained nor plain, nor a sentence with {{adjective}}, "
      "{{noun}} and {{digits}} in it",
      text.substr(0, shown));
}

}  // namespace

const NeedleForm& trained_needle_form() {
  static const NeedleForm form{.name = "trained",
                               .fact = std::string(trained_fact),
                               .question = std::string(trained_question),
                               .adjectives = trained_adjectives,
                               .nouns = trained_nouns};
  return form;
}

Result<NeedleForm> parse_needle_form(const std::string& text) {
  if (text == "trained") return trained_needle_form();
  NeedleForm form{.name = text,
                  .fact = std::string(plain_fact),
                  .question = std::string(plain_fact),
                  .adjectives = plain_adjectives,
                  .nouns = plain_nouns};
  if (text == "plain") return form;
  TERRACE_TRY(check_text(text));
  const std::size_t bar = text.find('|');
  form.fact = text.substr(0, bar);
  form.question = bar == text.npos ? text : text.substr(bar + 1);
  if (form.question.find('|') != text.npos) {
    return fail(Errc::invalid_argument,
                "--needles-form: '|' stands once, between the fact and its question");
  }
  TERRACE_TRY(check_sentence("fact", form.fact));
  TERRACE_TRY(check_question(form.question));
  return form;
}

}  // namespace terrace::apps
