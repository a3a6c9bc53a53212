// Selections by the means of groups and the signs of the rests of keys: see SignShape.
//
//   host::average_groups(groups);          // once, when all tokens of a page are indexed
//   host::sign_encode(encode);             // the signs of its tokens
//   host::sign_select(select, threads);    // at each step
//
// Not here: which tokens are a group (policies); estimates of what is left out (estimate.hpp).
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels {

/// Numbers of a rotated query are at most this: four of them, with any signs, fit in a byte.
inline constexpr float sign_query_max = 31;

namespace host {

/// Writes signs of tokens of one KV head.
struct SignEncode {
  KvShape shape;
  SignShape signs;
  IndexView index;  ///< signs are written to its chunks
  std::size_t head = 0;
  TokenRange tokens;
  /// True: the groups of the tokens are already in the index. False: the tokens get no group.
  bool grouped = false;
  float* keys = nullptr;  ///< [tokens, head_dim]; overwritten
};

/// Writes the signs of `tokens`, no others. A rest that is not finite has the factor NaN, which
/// spoils no other token; a rest of zeros has the factor 0.
///
/// Limits   allocates nothing
/// Tests    tests/kernels/sign_test.cpp
void sign_encode(const SignEncode& op) noexcept;

/// Chooses candidates. Ties go to the lower position, NaN ranks last.
///
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     per candidate and query head head_dim / 4 look-ups in tables of 16 bytes, many at once,
///          and per group a product
/// Source   one bit a channel, unbiased by one factor: Gao and Long, RaBitQ, 2024; look-ups in
///          registers: Andre, Kermarrec and Le Scouarnec, Cache locality is not enough, 2015
/// Tests    tests/kernels/sign_test.cpp
void sign_select(const SignSelect& op, Parallel& threads);

}  // namespace host
}  // namespace terrace::kernels
