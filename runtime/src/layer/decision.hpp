// The work of a retention decision in one layer, on the host: candidates are shown to the policy,
// and what it answers is carried out.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kept_entries.hpp"
#include "last_queries.hpp"
#include "position_scores.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

/// The subject of a decision: candidates are the entries that there are and the tokens that leave.
struct Flush {
  KvShape shape;
  LayerId layer = {};
  std::size_t sinks = 0;
  TokenRange leaving;             ///< tokens that leave the window
  std::size_t length = 0;         ///< tokens of the sequence
  bool decoding = false;          ///< else a prompt has ended
  std::vector<std::size_t> keep;  ///< [kv_heads]: entries that may stay
  std::uint64_t seed = 0;
  std::vector<std::byte*> blocks;  ///< of the host, as far as any token here needs them
  std::size_t block_tokens = 0;
  LastQueries::Run last_queries;  ///< where the policy chooses by them
};

/// The fate of tokens in a flush, over all KV heads.
struct FlushCount {
  std::uint64_t dropped = 0;
};

/// The part of a layer that a decision reads and writes.
struct DecisionParts {
  KeptEntries& entries;
  PositionScores& scores;
};

/// Decides, and writes the entries that result to `entries.next()`, which has room for them.
/// Errors: those of the policy; out_of_memory.
[[nodiscard]] Result<FlushCount> decide(const RetentionPolicy& policy, const Flush& flush,
                                        DecisionParts parts);

}  // namespace terrace
