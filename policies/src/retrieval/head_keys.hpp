// The keys of one KV head, as f32.
#pragma once

#include "terrace/core/retrieval.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {

/// Reads keys of a KV head from a request's rows: [tokens, head_dim].
/// Errors: those of read_keys().
[[nodiscard]] inline Status read_head_keys(const BuildRequest& request, TokenRange tokens,
                                           std::size_t head, float* target) {
  return kernels::host::read_keys({.shape = request.shape,
                                   .rows = request.rows,
                                   .tokens = tokens,
                                   .head = head,
                                   .dims = request.shape.head_dim},
                                  target);
}

}  // namespace terrace::policies
