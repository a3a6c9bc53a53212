// Decoding while an index is being built: steps attend exactly and wait for nothing, or they wait,
// as the options say.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
#include "runtime/own_policy.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Scenario;
using testing::StepOutput;

/// Builds its index when it is told to, and selects the first candidate of each list.
class Held final : public testing::OwnPolicy {
 public:
  Held() : OwnPolicy({.name = "held"}) {}

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& /*request*/,
                                               std::size_t /*part*/) const override {
    // Bounded: a test that never releases it has failed, and must not hang.
    for (int i = 0; i < 100'000'000 && !released.load(); ++i) std::this_thread::yield();
    return BuildReport{};
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& /*ops*/) const override {
    const SelectRequest request = batch.front();
    return queue.call(Phase::select, [request]() -> Result<std::size_t> {
      for (std::size_t head = 0; head < request.shape.kv_heads; ++head) {
        request.out.ids[head * request.out.capacity] =
            static_cast<std::uint32_t>(request.candidates.begin);
        request.out.id_count[head] = 1;
      }
      return 0;
    });
  }

  mutable std::atomic<bool> released{false};
};

Duration waited_for_index(const Sequence& sequence) {
  return sequence.counters().waits[static_cast<std::size_t>(WaitReason::index)];
}

class UntilReadyTest : public ::testing::Test {
 protected:
  UntilReadyTest() {
    scenario_.runtime.own_policy = policy_;
    scenario_.runtime.until_ready = UntilReady::exact;
  }

  std::shared_ptr<Held> policy_ = std::make_shared<Held>();
  Scenario scenario_;
};

constexpr std::size_t prompt = 200;

TEST_F(UntilReadyTest, StepsAttendToAllRowsAndWaitForNothing) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  Sequence& sequence = batch.sequence(0);
  ASSERT_TRUE(batch.drive(0).prefill(prompt).has_value());
  EXPECT_FALSE(sequence.index_ready());
  constexpr std::size_t steps = 200;  // so many that tables grow, and that blocks leave the window
  for (std::size_t i = 0; i < steps; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_FALSE(policy_->released.load());
  EXPECT_EQ(sequence.counters().exact_steps, steps);
  EXPECT_EQ(waited_for_index(sequence), Duration::zero());
  EXPECT_TRUE(sequence.selection(LayerId{0}).counts.empty());

  // The bits must be those of a prompt, because its tokens attend exactly.
  Scenario exact = scenario_;
  exact.runtime.own_policy = nullptr;
  const auto other = exact.open();
  Batch all(*other, 1);
  ASSERT_TRUE(all.sequence(0).begin_prompt(prompt + steps).has_value());
  all.expect_step(std::array{BatchMember{0, prompt}});
  all.expect_step(std::array{BatchMember{0, steps}});
  const std::vector<StepOutput> behind(all.outputs(0).begin() + prompt, all.outputs(0).end());
  EXPECT_EQ(batch.outputs(0), behind);

  policy_->released.store(true);
  ASSERT_TRUE(sequence.await_indexes().has_value());
  EXPECT_TRUE(sequence.index_ready());
  batch.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_EQ(sequence.counters().exact_steps, steps);
  EXPECT_THAT(sequence.selection(LayerId{0}).counts, ::testing::Each(1U));
  batch.drive(0).expect_all_rows_right();
}

TEST_F(UntilReadyTest, APromptBehindOneThatIsBeingIndexedWaitsItsTurn) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  Sequence& sequence = batch.sequence(0);
  ASSERT_TRUE(batch.drive(0).prefill(prompt).has_value());
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(sequence.begin_prompt(100).has_value());
    batch.expect_step(std::array{BatchMember{0, 60}});
    batch.expect_step(std::array{BatchMember{0, 40}});
    batch.expect_step(std::array{BatchMember{0, 3}}, std::array<std::size_t, 1>{2});
  }
  EXPECT_FALSE(sequence.index_ready());
  policy_->released.store(true);
  ASSERT_TRUE(sequence.await_indexes().has_value());
  EXPECT_TRUE(sequence.index_ready());
  batch.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_THAT(sequence.selection(LayerId{0}).counts, ::testing::Each(1U));
  batch.drive(0).expect_all_rows_right();
}

TEST_F(UntilReadyTest, StepsWaitWhereTheOptionsSaySo) {
  scenario_.runtime.until_ready = UntilReady::wait;
  scenario_.runtime.deadline = std::chrono::seconds(1);
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(prompt).has_value());
  EXPECT_EQ(waited_for_index(batch.sequence(0)), Duration::zero());
  const Status early = batch.drive(0).step();
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, Errc::not_ready) << early.error().message();
  EXPECT_GT(waited_for_index(batch.sequence(0)), Duration::zero());

  policy_->released.store(true);
  batch.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_EQ(batch.sequence(0).counters().exact_steps, 0U);
  EXPECT_THAT(batch.sequence(0).selection(LayerId{0}).counts, ::testing::Each(1U));
}

class RetrievedPrompts : public testing::OfEachPolicy {
 protected:
  RetrievedPrompts() { scenario_.runtime.prompts = PromptAttention::retrieved; }

  /// Outputs of a turn of `tokens` after a prompt, in pieces of `piece`.
  std::vector<StepOutput> turn(std::size_t tokens, std::size_t piece) {
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    EXPECT_TRUE(batch.drive(0).prefill(400).has_value());
    for (int i = 0; i < 30; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
    EXPECT_TRUE(batch.sequence(0).begin_prompt(tokens).has_value());
    const std::uint64_t streamed = batch.sequence(0).counters().bytes.streamed;
    for (std::size_t done = 0; done < tokens; done += piece) {
      batch.expect_step(std::array{BatchMember{0, std::min(piece, tokens - done)}});
    }
    EXPECT_EQ(batch.sequence(0).counters().bytes.streamed, streamed);
    for (int i = 0; i < 10; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
    batch.drive(0).expect_all_rows_right();
    return {batch.outputs(0).begin() + 30, batch.outputs(0).end()};
  }
};

TEST_P(RetrievedPrompts, AttendToWhatIsSelectedHoweverTheyAreCut) {
  const std::vector<StepOutput> whole = turn(60, 60);
  EXPECT_EQ(turn(60, 1), whole);
  EXPECT_EQ(turn(60, 23), whole);
  // The first token's budget is a step's.
  scenario_.runtime.prompts = PromptAttention::exact;
  const auto runtime = scenario_.open();
  Batch decoding(*runtime, 1);
  ASSERT_TRUE(decoding.drive(0).prefill(400).has_value());
  for (int i = 0; i < 31; ++i) decoding.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_EQ(whole.front(), decoding.outputs(0).back());
}

INSTANTIATE_TEST_SUITE_P(Policies, RetrievedPrompts,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace terrace
