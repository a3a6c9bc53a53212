#include "work/journal.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace terrace {
namespace {

class Steps final : public SelectionObserver {
 public:
  void on_share(SequenceId, std::size_t) override {}
  void on_prompt(const LayerPrompt& prompt) override { sequences.push_back(prompt.sequence); }
  void on_selection(const LayerSelection&) override {}
  void on_step_end(const StepTraffic& traffic) override { steps.push_back(traffic); }
  void on_loss(SequenceId sequence) override { sequences.push_back(sequence); }
  void on_pause(SequenceId) override {}
  void on_load(const LayerLoad&) override {}
  void on_close(SequenceId) override {}

  std::vector<SequenceId> sequences;
  std::vector<StepTraffic> steps;
};

TEST(Journal, WithoutAnObserverTakesEveryCall) {
  Journal journal(nullptr, SequenceId{3});
  EXPECT_FALSE(journal.listens());
  journal.note_loss();
  journal.note_prompt({});
  journal.add_ids(5);
  journal.note_step_end(1, 2);
}

TEST(Journal, NamesItsSequence) {
  Steps observer;
  const Journal journal(&observer, SequenceId{3});
  EXPECT_TRUE(journal.listens());
  journal.note_loss();
  journal.note_prompt({});
  EXPECT_THAT(observer.sequences, ::testing::ElementsAre(SequenceId{3}, SequenceId{3}));
}

TEST(Journal, SaysWhatEachStepMoved) {
  Steps observer;
  Journal journal(&observer, SequenceId{0});
  journal.add_ids(10);
  journal.add_ids(20);
  journal.note_step_end(100, 500);
  journal.note_step_end(100, 700);
  journal.reset_counters();
  journal.note_step_end(0, 40);
  ASSERT_EQ(observer.steps.size(), 3U);
  EXPECT_EQ(observer.steps[0].index_bytes, 500U);
  EXPECT_EQ(observer.steps[0].ids_bytes, 30U);
  EXPECT_EQ(observer.steps[0].offload_bytes, 100U);
  EXPECT_EQ(observer.steps[1].index_bytes, 200U);
  EXPECT_EQ(observer.steps[1].ids_bytes, 0U);
  EXPECT_EQ(observer.steps[2].index_bytes, 40U);
}

}  // namespace
}  // namespace terrace
