#include "run/needles.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "terrace/core/rng.hpp"

namespace terrace::apps {
namespace {

constexpr std::string_view digits_place = "{digits}";

/// Streams of the run's seed.
constexpr std::uint64_t name_stream = 1;
constexpr std::uint64_t value_stream = 2;

/// Returns `count` different numbers below `names`, in an order of the seed's.
std::vector<std::size_t> draw_names(std::size_t count, std::size_t names, std::uint64_t seed) {
  Rng random(seed, {name_stream});
  std::vector<std::size_t> drawn(names);
  for (std::size_t i = 0; i < names; ++i) drawn[i] = i;
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(drawn[i], drawn[i + random.below(names - i)]);
  }
  drawn.resize(count);
  return drawn;
}

/// Returns a number of 4 to 6 digits; each length is as likely.
std::uint64_t draw_value(Rng& random) {
  constexpr std::array<std::uint64_t, 3> smallest{1'000, 10'000, 100'000};
  const std::uint64_t low = smallest[random.below(smallest.size())];
  return low + random.below(9 * low);
}

std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  return tokens;
}

/// A thing and its number.
struct Fact {
  std::string_view adjective;
  std::string_view noun;
  std::string digits;
};

/// Returns a sentence of a form, or a part of one, with the fact's words in it.
std::string filled(std::string sentence, const Fact& fact) {
  const std::pair<std::string_view, std::string_view> words[] = {
      {"{adjective}", fact.adjective}, {"{noun}", fact.noun}, {digits_place, fact.digits}};
  for (const auto& [place, word] : words) {
    const std::size_t at = sentence.find(place);
    if (at != std::string::npos) sentence.replace(at, place.size(), word);
  }
  return sentence;
}

Needle make_needle(const NeedleForm& form, const Fact& fact) {
  const std::size_t digits = form.question.find(digits_place);
  // Blanks before the digits are the answer's: tokens of words begin with theirs.
  const std::size_t asked = form.question.find_last_not_of(' ', digits - 1) + 1;
  const std::string answer = filled(form.question.substr(asked), fact) + "\n";
  Needle needle{.statement = tokens_of("\n" + filled(form.fact, fact) + "\n"),
                .question = tokens_of("\n" + filled(form.question.substr(0, asked), fact)),
                .answer = tokens_of(answer),
                .answer_is_digit = std::vector<bool>(answer.size())};
  for (std::size_t i = 0; i < fact.digits.size(); ++i) {
    needle.answer_is_digit[digits - asked + i] = true;
  }
  return needle;
}

}  // namespace

std::string_view to_string(AskedAt place) noexcept {
  return place == AskedAt::prompt ? "prompt" : "after";
}

Result<std::vector<Needle>> make_needles(std::size_t count, std::uint64_t seed,
                                         const NeedleForm& form) {
  const std::size_t names = form.adjectives.size() * form.nouns.size();
  if (count > names) {
    return fail(Errc::invalid_argument, "--needles {}: there are {} distinct names", count, names);
  }
  Rng values(seed, {value_stream});
  std::vector<Needle> needles;
  for (const std::size_t name : draw_names(count, names, seed)) {
    needles.push_back(make_needle(form, {.adjective = form.adjectives[name / form.nouns.size()],
                                         .noun = form.nouns[name % form.nouns.size()],
                                         .digits = std::to_string(draw_value(values))}));
    needles.back().depth = (static_cast<double>(needles.size()) - 0.5) / static_cast<double>(count);
  }
  return needles;
}

Result<std::size_t> room_beside(std::span<const Needle> needles, std::size_t context) {
  std::size_t planted = 0;
  for (const Needle& needle : needles) planted += needle.statement.size();
  if (planted + needles.size() > context) {
    return fail(Errc::invalid_argument,
                "--needles {}: the facts fill {} tokens, more than --context {} holds; give fewer, "
                "or a longer context",
                needles.size(), planted, context);
  }
  return context - planted;
}

Result<std::vector<TokenId>> plant_needles(std::span<const Needle> needles,
                                           std::span<const TokenId> text, std::size_t context) {
  TERRACE_ASSIGN(const std::size_t room, room_beside(needles, context));
  std::vector<TokenId> tokens;
  auto next = text.begin();
  for (const Needle& needle : needles) {
    const auto upto =
        text.begin() + static_cast<std::ptrdiff_t>(needle.depth * static_cast<double>(room));
    tokens.insert(tokens.end(), next, upto);
    tokens.insert(tokens.end(), needle.statement.begin(), needle.statement.end());
    next = upto;
  }
  tokens.insert(tokens.end(), next, text.end());
  return tokens;
}

}  // namespace terrace::apps
