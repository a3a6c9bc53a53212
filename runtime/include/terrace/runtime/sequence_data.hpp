// The data that an engine gives a sequence, and views of the rows that a sequence attends to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

/// A piece of a prompt's K and V for one layer. Device memory, KV dtype; keys are post-RoPE. No
/// call looks whether they are finite: who rounds f32 to f16 must refuse what f16 cannot hold.
struct PromptPiece {
  TokenRange tokens = {};
  KvTensors kv = {};
  PromptHints hints = {};  ///< host memory; only what the policy's traits ask for
};

/// Queries, keys and values of a step's tokens for one layer. Device memory.
struct StepInput {
  const float* query = nullptr;  ///< [tokens, query_heads, head_dim] f32, post-RoPE
  std::size_t query_stride = 0;  ///< floats from one token to the next, of several
  KvTensors kv = {};             ///< [tokens], KV dtype
  /// [tokens, query_heads, head_dim] f32, if the policy needs it: SelectRequest::speculated_query.
  const float* speculated_query = nullptr;
  std::size_t speculated_query_stride = 0;  ///< floats from one token to the next, of several
  PromptHints hints = {};  ///< of a prompt's tokens: only what the policy's traits ask for;
                           ///< keys before RoPE of all tokens, where retention asks for them
};

/// The rows a step attends to, for an engine with its own attention kernel. Device memory. Kernels
/// that read them must be enqueued on the step's compute queue before the next call on the
/// sequence. Entries in canonical order: sinks, window, selected.
struct KvView {
  BlockTable resident = {};
  TokenRange sinks = {};
  TokenRange window = {};
  ListScope scope = ListScope::kv_head;
  std::byte* const* selected = nullptr;  ///< [lists, selected_stride]
  const std::uint32_t* selected_count = nullptr;
  std::size_t selected_stride = 0;
};

/// Rows that the last finished step selected in a layer. Host memory; valid until the next step.
struct StepSelection {
  TokenRange sinks = {};
  TokenRange window = {};  ///< the step's own token included
  ListScope scope = ListScope::kv_head;
  std::span<const std::uint32_t> ids = {};     ///< [lists, stride] positions
  std::span<const std::uint32_t> counts = {};  ///< [lists]; empty when nothing was selected
  std::size_t stride = 0;
};

/// The entries that retention has left of the tokens of a KV head that have left the window: by
/// rising position of the last token that each stands for, and how many tokens that is. Host
/// memory; valid until the next call that is not const.
struct RetainedEntries {
  std::span<const std::uint32_t> positions = {};
  std::span<const std::uint32_t> degrees = {};
};

}  // namespace terrace
