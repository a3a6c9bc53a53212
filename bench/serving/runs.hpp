// Measurements of a serving engine, each in one run: rivals take turns.
//
// Outputs of some steps and sequences are checked. A wrong one, or a sequence that fails, is the
// run's error.
#pragma once

#include <cstddef>
#include <vector>

#include "serving/engine.hpp"

namespace terrace::bench {

struct ServingSizes {
  std::size_t sequences = 1;
  std::size_t context = 4096;  ///< tokens of a prompt, in the mean
  std::size_t steps = 64;
  std::size_t prefill_chunk = 512;
  /// Rows of prompts are given: stored without attention, in steps of their own. Prompts that
  /// nobody measures then take seconds where attention takes minutes.
  bool given_prompts = false;
};

/// Figures of a batch that is decoded while sequences leave and others arrive, whose prompts come
/// in pieces beside those that decode. Times are of steps without a piece, in seconds a sequence
/// and layer.
struct ServingFigures {
  std::vector<double> step;        ///< of the batch
  std::vector<double> alone;       ///< of one more sequence that always decodes by itself
  std::vector<double> one_by_one;  ///< of the batch's sequences, each by itself in turn
  std::vector<double> outside;     ///< share of a batch's step in which its compute queue was idle
  std::size_t threads = 0;         ///< most that the process had
  std::size_t device_bytes = 0;    ///< most that steps, departures and arrivals needed
  std::size_t prompt_device_bytes = 0;  ///< most that the prompts of the beginning needed
  std::size_t arrivals = 0;
};
Result<ServingFigures> serve(const ServingOptions& options, const ServingSizes& sizes);

/// Figures of prompts that come in steps, in pieces and in one piece, with no other sequence beside
/// them. Times are in seconds a token and layer; of prompts that are given, of storing alone.
struct PromptFigures {
  std::vector<double> pieces;
  std::vector<double> one_piece;
  std::vector<double> clustering;  ///< of those in pieces, on a thread of its own
};
Result<PromptFigures> give_prompts(const ServingOptions& options, const ServingSizes& sizes);

/// Seconds of a batch's step with a piece of one more sequence's prompt in it, and of the two
/// apart: [pieces], of the same piece each. Errors: unsupported: prompts are given.
struct BesideFigures {
  std::vector<double> beside;
  std::vector<double> step;
  std::vector<double> piece;
};
Result<BesideFigures> step_beside_a_piece(const ServingOptions& options, const ServingSizes& sizes);

/// Seconds of one sequence's step, while another sequence's index is built and while no index is
/// built.
struct IndexingFigures {
  std::vector<double> during;
  std::vector<double> without;
};

/// Errors   unsupported: no step ended before the index was there
Result<IndexingFigures> step_while_indexing(const ServingOptions& options,
                                            const ServingSizes& sizes);

/// Seconds from opening a sequence to the output of its first token, of a prompt that the tiers
/// below keep and a question of 64 tokens behind it; of the same where all is computed or, with
/// prompts that are given, stored; and of having the prompt kept.
struct PrefixFigures {
  std::vector<double> behind;
  std::vector<double> computed;
  std::vector<double> published;
  std::size_t found = 0;         ///< tokens of the prompt, in whole chunks
  std::uint64_t bytes_read = 0;  ///< of rows and indexes, by the last question
};

/// Errors   unsupported: prefixes are not kept
Result<PrefixFigures> question_behind_a_prefix(const ServingOptions& options,
                                               const ServingSizes& sizes);

/// Returns how many threads this process has. Errors: unsupported where the system does not say.
Result<std::size_t> process_threads();

}  // namespace terrace::bench
