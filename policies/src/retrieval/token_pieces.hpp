// The tokens of a build, some at a time.
#pragma once

#include <algorithm>

#include "terrace/core/ops.hpp"

namespace terrace::policies {

/// Cuts a range into pieces; those of the usual size take a millisecond to read.
class TokenPieces {
 public:
  explicit TokenPieces(TokenRange all, std::size_t piece_tokens = 2048) noexcept
      : left_(all), piece_tokens_(piece_tokens) {}

  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }

  TokenRange take() noexcept {
    const TokenRange piece{left_.begin, std::min(left_.begin + piece_tokens_, left_.end)};
    left_.begin = piece.end;
    return piece;
  }

 private:
  TokenRange left_;
  std::size_t piece_tokens_;
};

}  // namespace terrace::policies
