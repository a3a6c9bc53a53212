// The tokens of a build, some at a time.
#pragma once

#include <algorithm>

#include "terrace/core/ops.hpp"

namespace terrace::policies {

/// Cuts a range into pieces whose rows take a millisecond to read; their ends are those of chunks
/// of any policy.
class TokenPieces {
 public:
  explicit TokenPieces(TokenRange all) noexcept : left_(all) {}

  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }

  TokenRange take() noexcept {
    const TokenRange piece{left_.begin, std::min(left_.begin + piece_tokens, left_.end)};
    left_.begin = piece.end;
    return piece;
  }

 private:
  static constexpr std::size_t piece_tokens = 2048;
  TokenRange left_;
};

}  // namespace terrace::policies
