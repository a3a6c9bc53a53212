// The pass that is measured, on the bundled model.
#include "run/quality_pass.hpp"

#include <gtest/gtest.h>

#include "run/timed_pass.hpp"

namespace terrace::apps {
namespace {

/// A job on the default text with these keys.
Result<RunJob> make_job(std::size_t context, std::size_t decode,
                        const std::vector<std::string>& assignments) {
  RunOptions options{.context = context, .decode = decode};
  options.shared.assignments = assignments;
  return prepare_job(options);
}

struct Measured {
  StepScores scores;
  std::uint64_t refreshes = 0;  ///< of the pass before
};

/// Measures the job's first policy after a timed pass, or directly after the prompt.
Measured measure(const RunJob& job, bool behind_timed_pass) {
  Progress progress(/*quiet=*/true);
  engine::AttentionProbe probe(job.model.config().kv_shape(kv_dtype(job)),
                               job.context + job.decode);
  EXPECT_TRUE(run_reference_pass(job, probe, progress).has_value());
  Session session =
      open_session(job, config_of_policy(job, job.policies.front()), progress).value();
  Measured measured;
  if (behind_timed_pass) {
    measured.refreshes = run_timed_pass(job, session, progress).value().counters.refreshes;
  } else {
    EXPECT_TRUE(prefill(job, session).has_value());
  }
  const auto fed = std::span(job.text.tokens).subspan(job.context, job.decode);
  auto pass = run_quality_pass(job, session, {.fed = {fed.begin(), fed.end()}}, probe, progress);
  EXPECT_TRUE(pass.has_value()) << pass.error().message();
  measured.scores = std::move(pass->scores);
  return measured;
}

TEST(QualityPass, KnowsNothingOfTheTextThatATimedPassBuiltItsIndexFrom) {
  // Less than a third of what it becomes: the codebooks are trained again while it grows.
  const RunJob job = make_job(64, 160, {"retrieval.policy=pqcache", "retrieval.budget=40"}).value();
  EXPECT_EQ(measure(job, true).scores.bits, measure(job, false).scores.bits);
}

TEST(QualityPass, KnowsNothingOfTheTextThatARefreshHasSeen) {
  const std::vector<std::string> keys{"retrieval.policy=pqcache", "retrieval.budget=64"};
  const RunJob grown = make_job(1200, 128, keys).value();
  std::vector<std::string> refreshed = keys;
  refreshed.emplace_back("index.refresh_tokens=32");
  const Measured behind = measure(make_job(1200, 128, refreshed).value(), true);
  ASSERT_GT(behind.refreshes, 0U) << "nothing was refreshed: the test would prove nothing";
  const Measured first = measure(grown, false);
  // No refresh begins before this pass itself has decoded so many tokens.
  for (std::size_t step = 0; step < 32; ++step) {
    EXPECT_EQ(behind.scores.bits[step], first.scores.bits[step]) << "step " << step;
  }
}

}  // namespace
}  // namespace terrace::apps
