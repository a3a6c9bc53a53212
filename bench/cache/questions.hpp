// How fast cache policies are and what they hit: rows of `terrace bench cache`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/trace.hpp"
#include "harness/question.hpp"
#include "terrace/core/result.hpp"

namespace terrace::bench {

/// The share of hits; 0 where nothing was wanted.
inline double hit_share(std::uint64_t hits, std::uint64_t misses) noexcept {
  const auto wanted = static_cast<double>(hits + misses);
  return wanted == 0 ? 0 : static_cast<double>(hits) / wanted;
}

/// Touches per second of every policy on dense keys, and the bytes of its state.
std::vector<Question> touch_questions();

/// Bytes that a cache of every policy keeps for each unit: the cache's own, and its policies'.
std::vector<Question> state_questions();

/// Units per second of every policy on a trace, with what it hits. Errors: those of replaying it.
Result<std::vector<Question>> replay_questions(const std::shared_ptr<const Trace>& trace);

/// Share of the wanted rows that every policy hits on a trace, in a cache of the units that a step
/// wants and of twice that (`1x`, `2x`), and of the tokens that it may select and of twice those
/// (`1x_selected`, and `2x_selected`, which is a cache of the default size); added are the
/// textbook's lru, which takes a step's units one after the other, and belady, which knows the
/// future. With `cache_tokens` above 0, in a cache of so many tokens per layer instead
/// (`N_tokens`).
std::vector<Question> hit_rate_questions(const std::shared_ptr<const Trace>& trace,
                                         std::size_t cache_tokens);

}  // namespace terrace::bench
