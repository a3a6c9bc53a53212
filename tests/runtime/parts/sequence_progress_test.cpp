#include "plan/sequence_progress.hpp"

#include <gtest/gtest.h>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

class Progress : public ::testing::Test {
 protected:
  Progress() {
    testing::Scenario scenario;
    scenario.runtime.budget.value = 20;
    scenario.runtime.sink_tokens = 4;
    plan_.emplace(RuntimePlan::make(scenario.runtime).value());
    progress_.emplace(*plan_);
  }

  void step(std::size_t tokens, bool of_prompt = false) {
    progress_->resolve_budget(progress_->length() + tokens);
    progress_->begin_step();
    progress_->add_tokens(tokens);
    progress_->note_accepted(of_prompt);
    progress_->end_step();
  }

  std::optional<RuntimePlan> plan_;
  std::optional<SequenceProgress> progress_;
};

TEST_F(Progress, TakesAPromptInPieces) {
  progress_->announce_prompt(6);
  EXPECT_TRUE(progress_->in_prompt());
  EXPECT_EQ(progress_->budget().context, 6U);
  step(4, /*of_prompt=*/true);
  EXPECT_TRUE(progress_->in_prompt());
  EXPECT_FALSE(progress_->prompt_waits());
  step(2, /*of_prompt=*/true);
  EXPECT_FALSE(progress_->in_prompt());
  EXPECT_TRUE(progress_->prompt_waits());
  progress_->note_prompt_indexed();
  EXPECT_FALSE(progress_->prompt_waits());
  EXPECT_FALSE(progress_->has_decoded());
  EXPECT_TRUE(progress_->is_behind_prompt());
}

TEST_F(Progress, LetsAPromptGrowWhileItComes) {
  progress_->announce_prompt(6);
  step(6, /*of_prompt=*/true);
  progress_->announce_prompt(3);
  EXPECT_EQ(progress_->prompt().begin, 0U);
  EXPECT_EQ(progress_->prompt().end, 9U);
  EXPECT_EQ(progress_->budget().context, 9U);
}

TEST_F(Progress, EndsAPromptWhereItsTokensEnd) {
  progress_->announce_prompt(6);
  step(4, /*of_prompt=*/true);
  EXPECT_TRUE(progress_->cut_prompt());
  EXPECT_EQ(progress_->prompt().end, 4U);
  EXPECT_TRUE(progress_->prompt_waits());
}

TEST_F(Progress, HasNothingToIndexOfAPromptThatNeverCame) {
  progress_->announce_prompt(6);
  EXPECT_FALSE(progress_->cut_prompt());
  EXPECT_FALSE(progress_->prompt_comes());
}

TEST_F(Progress, KeepsItsBudgetOnceItHasDecoded) {
  progress_->announce_prompt(6);
  step(6, /*of_prompt=*/true);
  progress_->note_prompt_indexed();
  step(1);
  EXPECT_TRUE(progress_->has_decoded());
  progress_->announce_prompt(30);
  EXPECT_EQ(progress_->budget().context, 6U);
}

TEST_F(Progress, TakesTokensBackWithinAStep) {
  step(4);
  progress_->begin_step();
  progress_->add_tokens(3);
  progress_->take_back_tokens(3);
  progress_->end_step();
  EXPECT_EQ(progress_->length(), 4U);
}

TEST_F(Progress, NamesThePhaseThatACallNeeds) {
  step(4);
  EXPECT_TRUE(progress_->require(SequencePhase::idle).has_value());
  progress_->pause();
  const Status refused = progress_->require(SequencePhase::idle);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_NE(refused.error().message().find("resume()"), std::string::npos);
  progress_->resume();
  EXPECT_EQ(progress_->phase(), SequencePhase::idle);
}

TEST_F(Progress, GoesOnAsAnother) {
  step(7);
  SequenceProgress twin(*plan_);
  twin.begin_as(*progress_);
  EXPECT_EQ(twin.length(), 7U);
  EXPECT_EQ(twin.phase(), SequencePhase::paused);
  EXPECT_EQ(progress_->phase(), SequencePhase::idle);
}

TEST_F(Progress, BeginsWithAPrefixAsIfItHadBeenItsPrompt) {
  progress_->begin_with_prefix(40, /*indexed=*/40);
  EXPECT_EQ(progress_->phase(), SequencePhase::paused);
  EXPECT_TRUE(progress_->prompt_given());
  EXPECT_FALSE(progress_->prompt_comes());
  EXPECT_EQ(progress_->sinks_at(40).end, 4U);
  EXPECT_EQ(progress_->budget().context, 40U);
}

TEST_F(Progress, HasThePartOfAPrefixWithoutAnIndexWaitForOne) {
  progress_->begin_with_prefix(40, /*indexed=*/16);
  EXPECT_FALSE(progress_->prompt_waits()) << "it is paused";
  progress_->resume();
  EXPECT_TRUE(progress_->prompt_waits());
  EXPECT_FALSE(progress_->in_prompt());
  EXPECT_EQ(progress_->prompt(), (TokenRange{16, 40}));
}

TEST_F(Progress, NotesDecisionsOnlyOfFlushesThatSucceed) {
  step(30);
  progress_->begin_flush(12);
  progress_->end_flush(/*decided=*/false);
  EXPECT_EQ(progress_->retained_end(), 0U);
  progress_->begin_flush(12);
  progress_->end_flush(/*decided=*/true);
  EXPECT_EQ(progress_->retained_end(), 12U);
  EXPECT_EQ(progress_->flush_end(), 0U);
  progress_->forget_decisions();
  EXPECT_EQ(progress_->retained_end(), 0U);
  EXPECT_EQ(progress_->flushes_from(), 30U + progress_->split().window);
}

TEST_F(Progress, RefusesMorePositionsThanSelectionsCanName) {
  EXPECT_TRUE(progress_->check_length(max_positions).has_value());
  EXPECT_FALSE(progress_->check_length(max_positions + 1).has_value());
}

}  // namespace
}  // namespace terrace
