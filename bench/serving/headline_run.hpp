// Steps of batches of several sizes out of one admission: sequences of one length, no arrivals.
//
// Each batch is the first sequences of those admitted. Before the first one is timed, all of them
// decode until the window has passed the prompt's end: from then on each step adds a token to each
// index, as it does for most of a sequence's life.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "serving/engine.hpp"

namespace terrace::bench {

/// Told what is being done, in a few words, whenever it changes.
using Say = std::function<void(const std::string& words)>;

struct HeadlineSizes {
  std::size_t context = 32'768;
  std::vector<std::size_t> batches{1};  ///< sizes; not empty
  std::size_t steps = 64;               ///< timed, of each batch
  std::size_t prefill_chunk = 512;
  /// All rows but sinks and window are on the host, and each token attends to all of them: they
  /// are streamed through device memory tile by tile. For a policy without an index.
  bool streamed = false;
};

/// The steps of a batch. Sums are of all its sequences and steps.
struct HeadlinePoint {
  std::size_t sequences = 0;
  std::size_t layers = 0;
  std::vector<double> step;  ///< seconds of each
  StepCpu cpu;
  LinkBytes bytes;
  CacheCounters cache;
  std::array<Duration, wait_reasons> waits{};

  /// Seconds of the middle step. 0.95: of one that is longer than so many.
  [[nodiscard]] double step_seconds(double quantile = 0.5) const;
};

struct HeadlineFigures {
  std::vector<HeadlinePoint> points;          ///< of HeadlineSizes::batches
  std::size_t admitted = 0;                   ///< sequences
  std::size_t device_bytes = 0;               ///< most that steps held
  std::size_t predicted_sequence = 0;         ///< by Runtime::memory_need, of each sequence
  std::size_t predicted_shared = 0;           ///< by the same, once for all
  std::size_t steps_until_window_passed = 0;  ///< 0 for a policy without an index
};

/// Prompts are given: stored without attention.
///
/// Errors   corrupt: an output of a batch's last step is wrong, in a sample of its query heads
Result<HeadlineFigures> time_headline_steps(const ServingOptions& options,
                                            const HeadlineSizes& sizes, const Say& say);

/// Seconds until the first token of one sequence is there, of several prompts that are given.
struct FirstTokenFigures {
  std::vector<double> prompt;      ///< of these, until the last piece is stored
  std::vector<double> indexed;     ///< the first token selects: it waits for the index
  std::vector<double> index_wait;  ///< of these, the wait
  std::vector<double> exact;       ///< the first token waits for no index, and attends to all rows
};
Result<FirstTokenFigures> time_first_tokens(const ServingOptions& options,
                                            const HeadlineSizes& sizes, const Say& say);

}  // namespace terrace::bench
