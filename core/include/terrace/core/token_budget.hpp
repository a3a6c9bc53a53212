// How many tokens a step may attend to, the way people write it: "0.1" is a share of the context,
// "2048" a number of tokens, "mass:0.95" as many as hold that share of the attention mass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace {

struct TokenBudget {
  enum class Kind : std::uint8_t { share, tokens, mass };

  Kind kind = Kind::share;
  double value = 1.0;  ///< share and mass: in (0, 1]; tokens: a whole number from 1

  /// Returns the limit in tokens for a context of that length, at least 1. A number of tokens may
  /// be more than the context: the sequence grows. A mass sets no limit beforehand: it returns the
  /// context.
  [[nodiscard]] std::size_t tokens(std::size_t context_tokens) const noexcept;

  /// Errors: invalid_argument: a value out of its kind's range.
  [[nodiscard]] Status validate() const;

  bool operator==(const TokenBudget&) const = default;
};

/// Reads a budget. The decimal point decides: "1.0" is all tokens of the context, "1" is
/// one token.
///
/// Errors   invalid_argument: not one of the three forms, or out of range
Result<TokenBudget> parse_token_budget(std::string_view text);

}  // namespace terrace
