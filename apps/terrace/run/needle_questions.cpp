#include "run/needle_questions.hpp"

#include <memory>
#include <utility>

#include "run/timed_pass.hpp"

namespace terrace::apps {
namespace {

Status feed(Session& session, Sequence& sequence, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) TERRACE_TRY(session.decoder->step(sequence, token));
  return {};
}

/// Feeds the answer after the question; a digit is right if it was the likeliest token.
Result<NeedleScore> answer(Session& session, Sequence& sequence, const Needle& needle) {
  NeedleScore score{.depth = needle.depth};
  for (std::size_t i = 0; i < needle.answer.size(); ++i) {
    if (needle.answer_is_digit[i]) {
      ++score.digits;
      if (most_likely(session.decoder->logits()) == needle.answer[i]) ++score.right;
    }
    TERRACE_TRY(feed(session, sequence, {&needle.answer[i], 1}));
  }
  return score;
}

/// Returns the part of a question that belongs to the prompt. Tokens of a prompt attend exactly, so
/// a step feeds at least one token before the first digit: the policy's choice must be scored.
std::span<const TokenId> part_in_prompt(const Needle& needle) {
  const bool digit_next = !needle.answer.empty() && needle.answer_is_digit.front();
  const std::size_t count = needle.question.size();
  return std::span(needle.question).first(digit_next && count > 1 ? count - 1 : count);
}

/// Prompts that are the context and a question.
class QuestionPrompts {
 public:
  QuestionPrompts(const RunJob& job, Session& session)
      : session_(session),
        context_(std::span(job.text.tokens).first(job.context)),
        piece_tokens_(job.prefill_chunk) {
    session_.sequence.reset();  // first, for device memory may hold but one
  }

  Result<NeedleScore> ask(const Needle& needle) {
    if (shares_) {
      Result<NeedleScore> score =
          fork().and_then([&](std::unique_ptr<Sequence> twin) { return ask_in(*twin, needle); });
      if (score || score.error().code != Errc::out_of_memory) return score;
      shares_ = false;
      trunk_.reset();
    }
    TERRACE_ASSIGN(const auto sequence, session_.runtime->open_sequence());
    TERRACE_TRY(give_context(*sequence));
    return ask_in(*sequence, needle);
  }

 private:
  Status give_context(Sequence& sequence) {
    return session_.decoder->prefill(sequence, context_,
                                     {.piece_tokens = piece_tokens_, .to_come = 1});
  }

  /// Returns a sequence that has the context, as the beginning of a prompt.
  Result<std::unique_ptr<Sequence>> fork() {
    if (trunk_ == nullptr) {
      TERRACE_ASSIGN(trunk_, session_.runtime->open_sequence());
      TERRACE_TRY(give_context(*trunk_));
    }
    return trunk_->fork();
  }

  Result<NeedleScore> ask_in(Sequence& sequence, const Needle& needle) {
    const std::span<const TokenId> in_prompt = part_in_prompt(needle);
    TERRACE_TRY(session_.decoder->prefill(sequence, in_prompt));
    TERRACE_TRY(feed(session_, sequence, std::span(needle.question).subspan(in_prompt.size())));
    return answer(session_, sequence, needle);
  }

  Session& session_;
  std::span<const TokenId> context_;
  std::size_t piece_tokens_;
  std::unique_ptr<Sequence> trunk_;  ///< has the context, and waits for questions
  bool shares_ = true;
};

Result<NeedleScore> ask_behind(Session& session, const Needle& needle) {
  TERRACE_TRY(feed(session, *session.sequence, needle.question));
  return answer(session, *session.sequence, needle);
}

template <typename Ask>
Result<std::vector<NeedleScore>> ask_each(const RunJob& job, Session& session, Progress& progress,
                                          Ask ask) {
  std::vector<NeedleScore> scores;
  for (const Needle& needle : job.needles) {
    progress.show(session.name, "needles",
                  static_cast<double>(scores.size()) / static_cast<double>(job.needles.size()));
    TERRACE_ASSIGN(const NeedleScore score, ask(needle));
    scores.push_back(score);
  }
  return scores;
}

}  // namespace

Result<std::vector<NeedleScore>> ask_needles(const RunJob& job, Session& session,
                                             Progress& progress) {
  if (job.needles.empty()) return std::vector<NeedleScore>{};
  if (job.needles_asked == AskedAt::after) {
    return ask_each(job, session, progress,
                    [&](const Needle& needle) { return ask_behind(session, needle); });
  }
  QuestionPrompts prompts(job, session);
  return ask_each(job, session, progress,
                  [&](const Needle& needle) { return prompts.ask(needle); });
}

}  // namespace terrace::apps
