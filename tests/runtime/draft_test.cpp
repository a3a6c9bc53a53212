// Drafts: several tokens of a sequence in one step; the first ones are accepted. Accepted tokens
// have the bits of decoding token by token.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Scenario;
using testing::StepOutput;

/// Takes steps of sequence 0 with `tokens` tokens each, and accepts so many of them.
void draft(Batch& batch, std::size_t tokens, std::span<const std::size_t> accepted) {
  for (const std::size_t count : accepted) {
    batch.expect_step(std::array{BatchMember{0, tokens}}, std::array{count});
  }
}

void expect_as_token_by_token(const Scenario& scenario, std::size_t prompt, std::size_t tokens,
                              std::span<const std::size_t> accepted) {
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(prompt).has_value());
  draft(batch, tokens, accepted);
  const std::vector<StepOutput> alone =
      testing::outputs_of(scenario, prompt, batch.outputs(0).size());
  for (std::size_t token = 0; token < alone.size(); ++token) {
    ASSERT_EQ(batch.outputs(0)[token], alone[token]) << "token " << token;
  }
  batch.drive(0).expect_all_rows_right();
}

/// Accepted counts of many drafts of `most` tokens.
std::vector<std::size_t> random_counts(std::size_t drafts, std::size_t most, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < drafts; ++i) counts.push_back(rng.below(most + 1));
  return counts;
}

std::vector<std::string> all_policies() {
  std::vector<std::string> policies = testing::selecting_policies();
  policies.insert(policies.end(), {"full", "streaming"});
  return policies;
}

class EachPolicyInDrafts : public testing::OfEachPolicy {};

TEST_P(EachPolicyInDrafts, HasTheBitsOfDecodingTokenByToken) {
  for (const IndexResidency residency : {IndexResidency::device, IndexResidency::host}) {
    for (const std::size_t prompt : {150U, 40U}) {  // the second grows out of its index
      SCOPED_TRACE(prompt);
      Scenario scenario = scenario_;
      scenario.runtime.index_residency = residency;
      expect_as_token_by_token(scenario, prompt, 5, random_counts(60, 5, prompt));
    }
  }
}

TEST_P(EachPolicyInDrafts, HasTheBitsOfDecodingWhereADraftIsLongerThanTheWindow) {
  Scenario scenario = scenario_;
  scenario.runtime.window_share = 0.2;
  expect_as_token_by_token(scenario, 150, 20, random_counts(25, 20, 7));
}

TEST_P(EachPolicyInDrafts, HasTheBitsOfDecodingWithACache) {
  Scenario scenario = scenario_;
  scenario.runtime.cache.tokens = 64;
  expect_as_token_by_token(scenario, 300, 4, random_counts(40, 4, 9));
  scenario.runtime.placement = Placement::resident_first;
  expect_as_token_by_token(scenario, 300, 4, random_counts(40, 4, 9));
}

INSTANTIATE_TEST_SUITE_P(Policies, EachPolicyInDrafts, ::testing::ValuesIn(all_policies()),
                         [](const auto& one) { return one.param; });

TEST(Draft, OfPoliciesWithClustersHasTheBitsOfDecodingWithACacheOfClusters) {
  for (const std::string policy : {"wave", "clusterkv"}) {
    SCOPED_TRACE(policy);
    Scenario scenario;
    scenario.runtime.policy = policy;
    scenario.runtime.cache.tokens = 64;
    scenario.runtime.cache.granularity = CacheGranularity::cluster;
    expect_as_token_by_token(scenario, 300, 4, random_counts(60, 4, 11));
  }
}

TEST(Draft, HasTheBitsOfDecodingWithACacheOfRows) {
  for (const std::string& policy : testing::selecting_policies()) {
    SCOPED_TRACE(policy);
    Scenario scenario;
    scenario.runtime.policy = policy;
    scenario.runtime.cache.tokens = 64;
    scenario.runtime.cache.granularity = CacheGranularity::row;
    expect_as_token_by_token(scenario, 300, 4, random_counts(30, 4, 11));
  }
}

TEST(Draft, KeepsOnlyTheRowsThatWereAccepted) {
  for (const std::string& policy : testing::selecting_policies()) {
    SCOPED_TRACE(policy);
    Scenario scenario;
    scenario.runtime.policy = policy;
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    ASSERT_TRUE(batch.drive(0).prefill(150).has_value());
    for (const std::size_t accepted : {3U, 0U, 1U, 5U, 2U, 4U}) {
      batch.expect_step(std::array{BatchMember{0, 5}}, std::array{accepted});
    }
    EXPECT_EQ(batch.sequence(0).length(), 165U);
    for (int i = 0; i < 30; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
    batch.drive(0).expect_all_rows_right();
  }
}

TEST(Draft, TakesNoMoreThanItBrought) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(100).has_value());
  const StepMember members[] = {{&batch.sequence(0), 2}};
  const auto step = runtime->begin_step(members, batch.compute()).value();
  const Status ended = step->end(std::array<std::size_t, 1>{3});
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace
