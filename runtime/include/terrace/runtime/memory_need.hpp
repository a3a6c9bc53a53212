// The memory that a sequence takes in each tier, said before there is one, for admission:
//
//   TERRACE_ASSIGN(const MemoryNeed need,
//                  runtime->memory_need({.tokens = 8'192, .step_tokens = 512}));
//   own += need.device_own();                        // of each member
//   shared = std::max(shared, need.device_shared);   // once for all members of a step
//   const bool fits = own + shared <= runtime->backend().memory(Tier::device).limit;
#pragma once

#include <cstddef>

#include "terrace/core/shape.hpp"

namespace terrace {

/// A sequence that may come, and the steps that it will take. Counts of tokens in a step that are 0
/// stand for 1, and those above `tokens` for `tokens`.
struct NeedQuery {
  std::size_t tokens = 0;         ///< that it grows to, prompts and outputs
  std::size_t step_tokens = 1;    ///< of a prompt's largest piece
  std::size_t prompt_tokens = 0;  ///< of its first prompt; 0 = not known, perhaps all
  /// Tokens of its largest draft; 1 = it takes no draft. A sequence keeps memory for the tokens of
  /// its largest draft until it is paused or closed.
  std::size_t draft_tokens = 1;
  /// Tokens of its longest prompt after the first one; 0 = no later prompt. Some policies attend to
  /// such a prompt row by row until it has ended (PromptAttention::retrieved,
  /// DroppedTokens::release).
  std::size_t later_prompt_tokens = 0;
  Dtype queries = Dtype::f32;  ///< as its steps bring them: StepOptions::queries
  /// Sequences that share the cache, this one included; 0 = the present sharers, and this one.
  std::size_t cache_sharers = 0;
};

/// Bytes at most. Each part is as of the moment at which it is largest.
///
/// Device: steps find room where device_own() of all sequences and the largest `device_shared` fit
/// into the tier's limit together; steps that are under way at the same time have the shared part
/// once each. In less memory caches give way, but not those of members that have begun the same
/// step.
///
/// Host: what counts against the limit of the tier. Pages of rows are taken by regions of up to
/// 64 MiB, as far as the limit allows, which the runtime keeps for sequences to come: leave it that
/// much beside host() of all. Left out is what lies on the process's heap: lists, scores of
/// retention, and hints of a prompt that a policy asks for.
struct MemoryNeed {
  /// While it decodes one token a step: blocks of sinks and window, dense layers, indexes,
  /// selections, entries of retention, scratch. Under Placement::resident_first all rows: under
  /// pressure the sequence gives up what Placement::offload would not keep.
  std::size_t device_held = 0;
  /// Its share of the cache, with the rows of a prompt's piece that the cache is about to take
  /// over.
  std::size_t device_cache = 0;
  /// A step's own, until it has ended: rows of the piece or the draft, tables for tiles, queries
  /// and outputs that are converted.
  std::size_t device_step = 0;
  /// Once for all members of a step: tiles of exact attention, and the state of the largest piece.
  /// The runtime keeps it for the next step, and gives it back under pressure.
  std::size_t device_shared = 0;
  std::size_t host_rows = 0;   ///< each row once, in whole pages; tables. All rows of prompts, too
  std::size_t host_index = 0;  ///< the indexes that the device has copies of
  std::size_t host_rest = 0;   ///< selections, entries and queries of retention, staging
  /// Bytes that a step scans: the indexes of all layers, once. Counted in the other parts.
  std::size_t index_bytes = 0;

  /// Bytes that add up over sequences.
  [[nodiscard]] constexpr std::size_t device_own() const noexcept {
    return device_held + device_cache + device_step;
  }
  [[nodiscard]] constexpr std::size_t host() const noexcept {
    return host_rows + host_index + host_rest;
  }
  bool operator==(const MemoryNeed&) const = default;
};

}  // namespace terrace
