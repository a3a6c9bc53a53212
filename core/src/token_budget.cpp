#include "terrace/core/token_budget.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace terrace {
namespace {

constexpr std::string_view mass_prefix = "mass:";

template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::size_t TokenBudget::tokens(std::size_t context_tokens) const noexcept {
  switch (kind) {
    case Kind::mass:
      return context_tokens;
    case Kind::tokens:
      return static_cast<std::size_t>(value);
    case Kind::share:
      break;
  }
  // A share such as 0.1 has no exact binary form: 0.1 * 4090 must not become 408.99999999999994.
  const double limit = std::floor(value * static_cast<double>(context_tokens) + 1e-6);
  return std::max<std::size_t>(1, static_cast<std::size_t>(limit));
}

Status TokenBudget::validate() const {
  constexpr double most_tokens = std::numeric_limits<std::uint32_t>::max();
  const bool counts = kind == Kind::tokens;
  const bool fits = counts ? value >= 1 && value <= most_tokens : value > 0 && value <= 1;
  if (fits && (!counts || std::floor(value) == value)) return {};
  return fail(Errc::invalid_argument, "a budget of {} {}; use {}", value,
              counts ? "tokens" : "of the tokens or of their mass",
              counts ? "a whole number from 1" : "above 0, and 1 at most");
}

Result<TokenBudget> parse_token_budget(std::string_view text) {
  const bool is_mass = text.starts_with(mass_prefix);
  const std::string_view digits = is_mass ? text.substr(mass_prefix.size()) : text;
  std::optional<TokenBudget> budget;
  if (is_mass || digits.find('.') != std::string_view::npos) {
    const auto kind = is_mass ? TokenBudget::Kind::mass : TokenBudget::Kind::share;
    if (const auto share = parse_whole<double>(digits)) budget = {.kind = kind, .value = *share};
  } else if (const auto count = parse_whole<std::uint32_t>(digits)) {
    budget = {.kind = TokenBudget::Kind::tokens, .value = static_cast<double>(*count)};
  }
  if (budget && budget->validate()) return *budget;
  return fail(
      Errc::invalid_argument,
      "'{}' is not a budget; write a share such as 0.1, a number of tokens such as 2048, or "
      "a share of attention mass such as mass:0.95",
      text);
}

}  // namespace terrace
