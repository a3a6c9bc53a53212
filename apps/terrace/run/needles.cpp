#include "run/needles.hpp"

#include <fmt/core.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "terrace/core/rng.hpp"

namespace terrace::apps {
namespace {

constexpr std::array<std::string_view, 30> adjectives{
    "amber", "brisk",  "calm",   "dusty",   "eager",  "faint",  "gentle", "hollow",
    "icy",   "jolly",  "keen",   "lucid",   "mellow", "narrow", "olive",  "proud",
    "quiet", "rusty",  "silent", "tidy",    "urban",  "vivid",  "wary",   "young",
    "zesty", "bitter", "clever", "distant", "early",  "frozen"};
constexpr std::array<std::string_view, 30> nouns{
    "anchor", "bridge", "canyon",  "desert",  "engine", "falcon", "garden",  "harbor",
    "island", "jacket", "kettle",  "lantern", "meadow", "needle", "orchard", "pepper",
    "quarry", "river",  "saddle",  "temple",  "uncle",  "valley", "window",  "yonder",
    "zipper", "bakery", "cottage", "dragon",  "forest", "glacier"};
constexpr std::size_t name_count = adjectives.size() * nouns.size();

/// Streams of the run's seed.
constexpr std::uint64_t name_stream = 1;
constexpr std::uint64_t value_stream = 2;

/// Returns `count` different numbers below name_count, in an order of the seed's.
std::vector<std::size_t> draw_names(std::size_t count, std::uint64_t seed) {
  Rng random(seed, {name_stream});
  std::vector<std::size_t> names(name_count);
  for (std::size_t i = 0; i < name_count; ++i) names[i] = i;
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(names[i], names[i + random.below(name_count - i)]);
  }
  names.resize(count);
  return names;
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

Needle make_needle(std::string_view adjective, std::string_view noun, std::uint64_t value) {
  const std::string fact = fmt::format("the pass code of the {} {} is", adjective, noun);
  const std::string answer = fmt::format(" {}.\n", value);
  Needle needle{.statement = tokens_of(fmt::format("\nNote: {}{}", fact, answer)),
                .question = tokens_of(fmt::format("\nAgain: {}", fact)),
                .answer = tokens_of(answer)};
  for (const char c : answer) needle.answer_is_digit.push_back(c >= '0' && c <= '9');
  return needle;
}

}  // namespace

Result<std::vector<Needle>> make_needles(std::size_t count, std::uint64_t seed) {
  if (count > name_count) {
    return fail(Errc::invalid_argument, "--needles {}: there are {} distinct names", count,
                name_count);
  }
  Rng values(seed, {value_stream});
  std::vector<Needle> needles;
  for (const std::size_t name : draw_names(count, seed)) {
    needles.push_back(make_needle(adjectives[name / nouns.size()], nouns[name % nouns.size()],
                                  draw_value(values)));
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
