#include "run/quality_pass.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace terrace::apps {
namespace {

/// Tokens to feed after a prompt, the context (0) or a turn.
struct StepsToScore {
  std::span<const TokenId> fed;
  std::size_t prompt = 0;
  engine::AttentionProbe* probe = nullptr;  ///< null = what is attended to is not measured
};

/// Feeds tokens one by one; scores what follows each and, with a probe, what each attended to.
Result<StepScores> score_steps(const RunJob& job, Session& session, const StepsToScore& steps,
                               Progress& progress) {
  const auto [fed, prompt, probe] = steps;
  StepScores scores;
  for (std::size_t step = 0; step < fed.size(); ++step) {
    TERRACE_TRY(session.decoder->step(*session.sequence, fed[step]));
    const std::span<const float> logits = session.decoder->logits();
    scores.most_likely.push_back(most_likely(logits));
    if (!job.generate) {
      scores.bits.push_back(bits_of(logits, job.text.tokens[job.text_behind(prompt) + step + 1]));
    }
    if (probe != nullptr) {
      scores.attention.push_back(probe->measure(*session.sequence, *session.decoder,
                                                session.runtime->backend().device_threads()));
    }
    progress.show(session.name, "quality",
                  static_cast<double>(step + 1) / static_cast<double>(fed.size()));
  }
  return scores;
}

}  // namespace

double bits_of(std::span<const float> logits, TokenId token) {
  const auto largest = static_cast<double>(std::ranges::max(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_probability =
      static_cast<double>(logits[index(token)]) - largest - std::log(sum);
  return -log_probability * std::numbers::log2e;
}

Result<ReferencePass> run_reference_pass(const RunJob& job, engine::AttentionProbe& probe,
                                         Progress& progress) {
  TERRACE_ASSIGN(Session session, open_session(job, config_of_reference(job), progress));
  session.decoder->observe(&probe);
  TERRACE_TRY(prefill(job, session));
  session.decoder->observe(nullptr);
  if (job.generate) return ReferencePass{};
  const auto fed = std::span(job.text.tokens).subspan(job.context, job.decode);
  return score_steps(job, session, {.fed = fed}, progress).map([](StepScores&& scores) {
    return ReferencePass{std::move(scores)};
  });
}

Result<QualityPass> run_quality_pass(const RunJob& job, Session& session, const TimedPass& timed,
                                     engine::AttentionProbe& probe, Progress& progress) {
  QualityPass pass;
  TERRACE_TRY(return_to_context(job, session));
  probe.reset();
  session.decoder->observe(&probe);
  TERRACE_ASSIGN(pass.scores,
                 score_steps(job, session, {.fed = timed.fed, .probe = &probe}, progress));
  session.decoder->observe(nullptr);
  pass.attention = probe.quality();
  for (std::size_t turn = 1; turn <= timed.turns.size(); ++turn) {
    TERRACE_TRY(give(job, job.turns[turn - 1], session));
    const StepsToScore steps{.fed = timed.turns[turn - 1].fed, .prompt = turn};
    TERRACE_ASSIGN(StepScores scores, score_steps(job, session, steps, progress));
    pass.turns.push_back(std::move(scores));
  }
  return pass;
}

}  // namespace terrace::apps
