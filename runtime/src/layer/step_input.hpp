// Tensors that one member of a step brings to a layer, and the place of its outputs.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

/// Queries, keys and values of a member's tokens. Device memory; strides are numbers from one token
/// to the next, bytes in `kv`.
struct StepInput {
  const float* query = nullptr;  ///< [tokens, query_heads, head_dim] f32, post-RoPE
  std::size_t query_stride = 0;
  KvTensors kv = {};                        ///< [tokens], KV dtype
  const float* speculated_query = nullptr;  ///< as query; null where the policy needs none
  std::size_t speculated_query_stride = 0;
  PromptHints hints = {};  ///< host memory
};

/// Where outputs go: [tokens, query_heads, head_dim].
struct StepOutput {
  float* data = nullptr;
  std::size_t stride = 0;  ///< floats from one token to the next
};

}  // namespace terrace
