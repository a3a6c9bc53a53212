// Checks of the tensors that an engine gives: all that an op would refuse is refused before the
// first of them is enqueued, for an op's failure ends the step for all its members.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

/// Vectors [tokens, query_heads, head_dim], of whatever type.
struct TokenVectors {
  const void* first = nullptr;
  std::size_t stride = 0;  ///< numbers from one token to the next
};

/// Errors: invalid_argument: keys or values are missing, or overlap those of another token or head.
[[nodiscard]] Status check_kv(const KvShape& shape, const KvTensors& kv, std::size_t tokens);

/// Errors: invalid_argument: queries are missing, or overlap, or are not aligned to their type.
[[nodiscard]] Status check_queries(const KvShape& shape, const TokenVectors& queries, Dtype dtype,
                                   std::size_t tokens);

/// Errors: those of check_queries(), for outputs; invalid_argument: outputs overlap the queries,
/// which are read while outputs are written. Outputs of several tokens may lie between queries
/// where `token_by_token`.
[[nodiscard]] Status check_outputs(const KvShape& shape, const TokenVectors& outputs, Dtype dtype,
                                   std::size_t tokens);
[[nodiscard]] Status check_apart(const KvShape& shape, const TokenVectors& queries,
                                 const TokenVectors& outputs, std::size_t tokens,
                                 bool token_by_token);

}  // namespace terrace
