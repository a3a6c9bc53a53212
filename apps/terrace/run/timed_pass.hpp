// The pass that is timed: prefill and the steps, with nothing beside them.
#pragma once

#include <span>
#include <vector>

#include "run/session.hpp"
#include "terrace/runtime/counters.hpp"

namespace terrace::apps {

/// Wall time. All but the prefills and keep are means per decoded token; select to model are its
/// parts.
struct RunSeconds {
  double prefill = 0;
  double keep = 0;  ///< the context was written for later runs
  double prefill_without_clustering = 0;
  double decode_per_token = 0;
  double select = 0;
  double fetch = 0;
  double attend = 0;
  double wait = 0;    ///< the compute queue waited for data
  double update = 0;  ///< all else the step took: append, codes, cache upkeep, enqueueing
  double model = 0;   ///< projections, feed-forward, head

  /// Returns the time that a step spends on the KV cache.
  [[nodiscard]] double attention() const noexcept {
    return select + fetch + attend + wait + update;
  }
};

/// The time of the steps, all together.
struct StepTimes {
  Duration wall{};
  Duration clustering_wait{};  ///< the first step's, for indexes not yet built
  QueueCounters queue;         ///< the compute queue's
};

/// Divides the wall time of the steps among its parts, as means. Time in which the compute queue
/// neither computed nor waited counts as cache management, never as the model's.
void deal_out(const StepTimes& times, std::size_t steps, RunSeconds& result);

/// A later prompt, and the tokens decoded after it.
struct TimedTurn {
  double prompt_seconds = 0;
  double decode_per_token = 0;       ///< seconds
  std::uint64_t streamed_bytes = 0;  ///< rows that the prompt attended to and the host had
  std::vector<TokenId> fed;          ///< by each step
};

/// All figures but those of `turns` are of the context and the tokens decoded after it.
struct TimedPass {
  RunSeconds seconds;
  SequenceCounters counters;  ///< of the steps; bytes.offload of the prefill too
  ClusteringReport clustering;
  RetentionReport retention;
  std::size_t device_peak_bytes = 0;         ///< of decoding, after turns, too
  std::size_t prompt_device_peak_bytes = 0;  ///< of prompts, with turns
  std::size_t host_peak_bytes = 0;           ///< of all
  std::size_t block_pool_bytes = 0;          ///< of the device's: sinks, windows, cache
  std::vector<TokenId> fed;  ///< by each step; the token that ends a text is one of them
  std::vector<TimedTurn> turns;
};

/// Whether generated text is at its end: the last token of `fed` is one that ends it.
[[nodiscard]] bool has_ended(const RunJob& job, std::span<const TokenId> fed);

/// Decodes after a prompt, the context (0) or a turn: only steps are timed. Adds each step's token
/// to `fed`, and returns the duration of each step. Generated text may end sooner than the job asks
/// for.
Result<std::vector<Duration>> time_steps(const RunJob& job, Session& session, Progress& progress,
                                         std::vector<TokenId>& fed, std::size_t prompt = 0);

/// Prefills the session's empty sequence and decodes, the text's own tokens, or greedily; then does
/// the same for each turn.
Result<TimedPass> run_timed_pass(const RunJob& job, Session& session, Progress& progress);

/// Returns the seconds of a policy's prefill without any clustering beside it.
Result<double> time_prefill_without_clustering(const RunJob& job, const std::string& policy,
                                               Progress& progress);

/// Returns the most likely token, the lower of two that are equal.
TokenId most_likely(std::span<const float> logits);

}  // namespace terrace::apps
