// A namespace to begin with, in tests.
#pragma once

#include "terrace/tiers/namespace.hpp"

namespace terrace::tiers {

inline Namespace some_namespace() {
  return {.model_fingerprint = "6fe3",
          .kv_dtype = Dtype::bf16,
          .layers = {.whole = 32, .begin = 0, .count = 32},
          .kv_heads = {.whole = 8, .begin = 4, .count = 4},
          .head_dim = 128,
          .rope = "theta 500000",
          .block_tokens = 2,
          .chunk_tokens = 4,
          .salt = TenantSalt("secret")};
}

}  // namespace terrace::tiers
