// Budgets that are a share: they follow a sequence's length, and never begin below a least budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Scenario;
using testing::StepOutput;

constexpr std::size_t least = 64;
constexpr double share = 0.25;

class BudgetShare : public testing::OfEachPolicy {
 protected:
  BudgetShare() {
    scenario_.runtime.budget = {.kind = TokenBudget::Kind::share, .value = share};
    scenario_.runtime.budget_min = least;
  }

  /// The budget of a token after `length` others.
  [[nodiscard]] std::size_t budget_at(std::size_t length) const {
    return std::max(least, static_cast<std::size_t>(share * static_cast<double>(length + 1)));
  }

  /// Outputs of a sequence that begins without a prompt, token by token.
  std::vector<StepOutput> from_the_first_token(std::size_t tokens, bool everything) const {
    Scenario scenario = scenario_;
    if (everything) scenario.runtime.policy = "full";
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    for (std::size_t i = 0; i < tokens; ++i) batch.expect_step(std::array{BatchMember{0, 1}});
    return batch.outputs(0);
  }

  /// Outputs of a chat: prompts of some tokens, and some tokens decoded after each, in pieces.
  std::vector<StepOutput> chat(std::size_t piece) const {
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    for (const std::size_t prompt : {20U, 10U, 300U, 3U, 500U}) {
      batch.expect_prompt(0, prompt, piece);
      for (std::size_t i = 0; i < 70; ++i) batch.expect_step(std::array{BatchMember{0, 1}});
    }
    batch.drive(0).expect_all_rows_right();
    return batch.outputs(0);
  }
};

TEST_P(BudgetShare, AttendsToAllTokensOfASequenceShorterThanTheLeastBudget) {
  const std::vector<StepOutput> outputs = from_the_first_token(least, false);
  const std::vector<StepOutput> full = from_the_first_token(least, true);
  for (std::size_t token = 0; token < least; ++token) {
    for (std::size_t i = 0; i < full[token].size(); ++i) {
      ASSERT_NEAR(outputs[token][i], full[token][i], 1e-5) << "token " << token;
    }
  }
}

TEST_P(BudgetShare, FollowsTheLengthFromAShortFirstPrompt) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.expect_prompt(0, 20, 20);
  std::size_t window_begin = 0;
  for (std::size_t length = 20; length < 900; ++length) {
    batch.expect_step(std::array{BatchMember{0, 1}});
    const Sequence& sequence = batch.sequence(0);
    ASSERT_EQ(sequence.budget_tokens(), budget_at(length + 1));
    ASSERT_EQ(sequence.sinks().end, scenario_.runtime.sink_tokens);
    ASSERT_GE(sequence.window().begin, window_begin);
    window_begin = sequence.window().begin;
  }
  const std::size_t window = batch.sequence(0).length() - window_begin;
  const std::size_t attended =
      scenario_.runtime.sink_tokens + window + 1 + batch.sequence(0).selected_tokens();
  EXPECT_EQ(attended, budget_at(900));
  batch.drive(0).expect_all_rows_right();
}

TEST_P(BudgetShare, IsRaisedByALaterPrompt) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.expect_prompt(0, 20, 20);
  batch.expect_step(std::array{BatchMember{0, 1}});
  EXPECT_EQ(batch.sequence(0).budget_tokens(), least);
  batch.expect_prompt(0, 1000, 300);
  batch.expect_step(std::array{BatchMember{0, 1}});
  EXPECT_EQ(batch.sequence(0).budget_tokens(), budget_at(1022));
}

TEST_P(BudgetShare, GivesTheSameBitsWhateverThePieces) { EXPECT_EQ(chat(1000), chat(7)); }

TEST_P(BudgetShare, GivesTheSameBitsInADraft) {
  std::array<std::vector<StepOutput>, 2> outputs;
  for (const bool drafts : {false, true}) {
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    batch.expect_prompt(0, 400, 400);
    for (std::size_t i = 0; i < 40; ++i) {
      if (drafts) {
        batch.expect_step(std::array{BatchMember{0, 5}}, std::array<std::size_t, 1>{3});
      } else {
        for (int k = 0; k < 3; ++k) batch.expect_step(std::array{BatchMember{0, 1}});
      }
    }
    outputs[drafts ? 1 : 0] = batch.outputs(0);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

/// Returns the last `count` outputs of sequence i.
std::vector<StepOutput> last_outputs(const Batch& batch, std::size_t i, std::size_t count) {
  const std::vector<StepOutput>& all = batch.outputs(i);
  return {all.end() - static_cast<std::ptrdiff_t>(count), all.end()};
}

TEST_P(BudgetShare, GivesTheSameBitsAfterACutAPauseAndAFork) {
  const auto decode = [](Batch& batch, std::span<const std::size_t> sequences, std::size_t tokens) {
    for (std::size_t i = 0; i < tokens; ++i) batch.expect_step(sequences);
  };
  constexpr std::array<std::size_t, 1> alone{0};
  constexpr std::array<std::size_t, 2> both{0, 1};
  const auto expected = [&] {
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    batch.expect_prompt(0, 500, 500);
    decode(batch, alone, 80);
    return last_outputs(batch, 0, 60);
  }();
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 2);
  batch.expect_prompt(0, 500, 500);
  decode(batch, alone, 60);
  ASSERT_TRUE(batch.sequence(0).pause().has_value());
  ASSERT_TRUE(batch.sequence(0).resume().has_value());
  auto twin = batch.sequence(0).fork();
  ASSERT_TRUE(twin.has_value()) << twin.error().message();
  EXPECT_EQ((*twin)->budget_tokens(), batch.sequence(0).budget_tokens());
  EXPECT_EQ((*twin)->window().begin, batch.sequence(0).window().begin);
  batch.replace(1, *std::move(twin), batch.traffic(0));
  decode(batch, both, 20);
  EXPECT_TRUE(last_outputs(batch, 0, 60) == expected);
  EXPECT_TRUE(last_outputs(batch, 1, 20) == last_outputs(batch, 0, 20));
  ASSERT_TRUE(batch.sequence(0).truncate(520).has_value());
  EXPECT_EQ(batch.sequence(0).budget_tokens(), budget_at(520));
  decode(batch, alone, 60);
  // Bounds of quest's pages are of all indexed tokens, also of those that are in the window again.
  const bool looks_ahead = scenario_.runtime.policy == "quest";
  EXPECT_TRUE(looks_ahead || last_outputs(batch, 0, 60) == expected);
  batch.drive(0).expect_all_rows_right();
}

TEST_P(BudgetShare, IsCountedInWhatASequenceNeeds) {
  const auto runtime = scenario_.open();
  EXPECT_GT(runtime->memory_need({.tokens = 10'000})->device_held,
            runtime->memory_need({.tokens = 100})->device_held);
}

INSTANTIATE_TEST_SUITE_P(Table, BudgetShare, ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

TEST(LeastBudget, HoldsSinksAWindowAndASelectedToken) {
  Scenario scenario;
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.01};
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  batch.expect_prompt(0, 20, 20);
  batch.expect_step(std::array{BatchMember{0, 1}});
  EXPECT_EQ(batch.sequence(0).budget_tokens(), scenario.runtime.sink_tokens + 3);
  EXPECT_EQ(batch.sequence(0).sinks().end, scenario.runtime.sink_tokens);
  EXPECT_EQ(batch.sequence(0).selected_tokens(), 1U);
}

}  // namespace
}  // namespace terrace
