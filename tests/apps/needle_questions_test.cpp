// Asking for planted facts, on the bundled model.
#include "run/needle_questions.hpp"

#include <gtest/gtest.h>

#include "run/timed_pass.hpp"

namespace terrace::apps {
namespace {

/// A job with facts that are asked for in prompts.
RunJob make_job(const std::string& policy, std::size_t context = 1024,
                const std::string& device_memory = "unlimited") {
  RunOptions options{.context = context, .decode = 1, .needles = 4, .needles_asked = "prompt"};
  options.shared.assignments = {"retrieval.policy=" + policy, "retrieval.budget=200",
                                "retention.pool=15", "device.memory=" + device_memory};
  return prepare_job(options).value();
}

/// The session shows its progress to `progress`, which has to outlive it.
Session open(const RunJob& job, Progress& progress) {
  return open_session(job, config_of_policy(job, job.policies.front()), progress).value();
}

/// Returns the right digits of each needle by a prompt of its own, whole.
std::vector<std::size_t> right_one_by_one(const RunJob& job) {
  Progress progress(/*quiet=*/true);
  std::vector<std::size_t> right;
  for (const Needle& needle : job.needles) {
    Session session = open(job, progress);
    std::vector<TokenId> prompt(job.text.tokens.begin(),
                                job.text.tokens.begin() + std::ptrdiff_t(job.context));
    prompt.insert(prompt.end(), needle.question.begin(), needle.question.end());
    EXPECT_TRUE(session.decoder->prefill(*session.sequence, prompt).has_value());
    right.push_back(0);
    for (std::size_t i = 0; i < needle.answer.size(); ++i) {
      const bool hit = most_likely(session.decoder->logits()) == needle.answer[i];
      if (needle.answer_is_digit[i] && hit) ++right.back();
      EXPECT_TRUE(session.decoder->step(*session.sequence, needle.answer[i]).has_value());
    }
  }
  return right;
}

std::vector<std::size_t> right_asked_together(const RunJob& job) {
  Progress progress(/*quiet=*/true);
  Session session = open(job, progress);
  const auto scores = ask_needles(job, session, progress);
  EXPECT_TRUE(scores.has_value()) << scores.error().message();
  std::vector<std::size_t> right;
  for (const NeedleScore& score : scores.value()) right.push_back(score.right);
  return right;
}

TEST(NeedleQuestions, InPromptsFindWhatPromptsOfTheirOwnFind) {
  for (const char* const policy : {"full", "pqcache", "snapkv", "h2o", "chelsea", "smartkv"}) {
    const RunJob job = make_job(policy);
    EXPECT_EQ(right_asked_together(job), right_one_by_one(job)) << policy;
  }
}

TEST(NeedleQuestions, InPromptsAreAskedWhereDeviceMemoryHoldsOneSequence) {
  constexpr std::size_t context = 4096;  // the rows of full attention fill most of the memory
  const RunJob roomy = make_job("full", context);
  const auto prompt = std::span(roomy.text.tokens).first(context);
  Progress progress(/*quiet=*/true);
  Session one = open(roomy, progress);
  ASSERT_TRUE(one.decoder->prefill(*one.sequence, prompt).has_value());
  const std::size_t peak = one.runtime->backend().memory(Tier::device).peak;
  const RunJob tight = make_job("full", context, std::to_string(peak + peak / 8) + "B");
  Session two = open(tight, progress);
  ASSERT_TRUE(two.decoder->prefill(*two.sequence, prompt).has_value());
  const auto twin = two.sequence->fork();
  ASSERT_FALSE(twin.has_value()) << "there is room for two: the test would prove nothing";
  EXPECT_EQ(twin.error().code, Errc::out_of_memory);
  EXPECT_EQ(right_asked_together(tight), right_asked_together(roomy));
}

TEST(NeedleQuestions, LeaveTheFirstDigitToAStepThatThePolicyChoosesFor) {
  // Only the last tokens are attended to, and the digits follow the question directly: tokens of
  // the prompt, which attend exactly, would reveal the first digit.
  RunOptions options{.context = 1024, .decode = 1, .needles = 8, .needles_asked = "prompt"};
  options.shared.assignments = {"retrieval.policy=full,streaming", "retrieval.budget=100"};
  RunJob job = prepare_job(options).value();
  std::size_t first_right[2] = {};
  for (Needle& needle : job.needles) {  // the blank goes to the question, and one digit is asked
    needle.question.push_back(needle.answer.front());
    needle.answer = {needle.answer[1]};
    needle.answer_is_digit = {true};
  }
  for (const bool full : {false, true}) {
    Progress progress(/*quiet=*/true);
    Session session =
        open_session(job, config_of_policy(job, full ? "full" : "streaming"), progress).value();
    const auto scores = ask_needles(job, session, progress).value();
    for (const NeedleScore& score : scores) first_right[full ? 1 : 0] += score.right;
  }
  EXPECT_LT(first_right[0] + 2, first_right[1]);
}

}  // namespace
}  // namespace terrace::apps
