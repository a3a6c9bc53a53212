// The pass that is measured: the same steps once more, with exact attention beside them.
#pragma once

#include <vector>

#include "run/session.hpp"
#include "run/timed_pass.hpp"
#include "terrace/engine/attention_probe.hpp"

namespace terrace::apps {

/// The model's scores at each step.
struct StepScores {
  std::vector<double> bits;  ///< of the text's next token; empty when generating
  std::vector<TokenId> most_likely;
  std::vector<engine::AttentionQuality> attention;  ///< of each step; empty without a probe
};

struct QualityPass {
  StepScores scores;
  engine::AttentionQuality attention;
  std::vector<StepScores> turns;  ///< of the tokens decoded after each
};

/// The pass that the others are compared with: full attention, all of it in device memory.
struct ReferencePass {
  StepScores scores;  ///< empty when generating
};

/// Runs full attention. The probe learns the prompt's keys, which no policy changes.
Result<ReferencePass> run_reference_pass(const RunJob& job, engine::AttentionProbe& probe,
                                         Progress& progress);

/// Returns to the end of the context, and feeds the tokens of `timed` again, including turns.
Result<QualityPass> run_quality_pass(const RunJob& job, Session& session, const TimedPass& timed,
                                     engine::AttentionProbe& probe, Progress& progress);

/// Returns -log2 of a token's probability.
double bits_of(std::span<const float> logits, TokenId token);

}  // namespace terrace::apps
