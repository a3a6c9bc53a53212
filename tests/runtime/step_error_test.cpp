// Steps, and calls between them, that fail or are out of place: nothing is left.
#include <gmock/gmock.h>

#include <array>
#include <atomic>

#include "runtime/batch.hpp"
#include "runtime/faulty_runtime.hpp"
#include "runtime/own_policy.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Scenario;
using testing::StepOutput;

/// The last outputs of a sequence that decodes `count` tokens more.
std::vector<StepOutput> decode(Batch& batch, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
  const auto& all = batch.outputs(0);
  return {all.end() - static_cast<std::ptrdiff_t>(count), all.end()};
}

/// Cannot enqueue its selecting while `fails`.
class Failing final : public testing::OwnPolicy {
 public:
  Failing() : OwnPolicy({.name = "failing"}) {}

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& /*ops*/) const override {
    if (fails) return fail(Errc::not_ready, "no room");
    const auto select_none = [out = batch.front().out]() -> Result<std::size_t> {
      out.id_count[0] = out.id_count[1] = 0;
      return 0;
    };
    return queue.call(Phase::select, select_none);
  }

  mutable std::atomic<bool> fails{false};
};

TEST(StepError, OfSharedWorkIsRememberedUntilTheStepIsGivenUp) {
  const auto policy = std::make_shared<Failing>();
  Scenario scenario;
  scenario.runtime.own_policy = policy;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(200).has_value());
  const std::vector<float> query(scenario.runtime.shape.query_heads * 16);
  const auto rows = batch.traffic(0).rows(0, {200, 201});
  std::vector<float> output(query.size());
  const StepTensors tensors{
      .query = query.data(), .kv = batch.traffic(0).tensors(rows, 1), .output = output.data()};
  {
    const StepMember members[] = {{&batch.sequence(0)}};
    const auto step = runtime->begin_step(members, batch.compute()).value();
    policy->fails = true;
    EXPECT_EQ(step->attend(LayerId{0}, tensors).error().code, Errc::not_ready);
    policy->fails = false;
    EXPECT_EQ(step->attend(LayerId{0}, tensors).error().code, Errc::not_ready);
    EXPECT_FALSE(step->end().has_value());
  }
  EXPECT_EQ(batch.sequence(0).length(), 200U);
  EXPECT_EQ(decode(batch, 5), testing::outputs_of(scenario, 200, 5));
}

/// Takes steps of all members, and takes those again that failed. Returns how many did.
std::size_t step_until_done(Batch& batch, std::span<const std::size_t> members) {
  std::vector<std::size_t> left(members.begin(), members.end());
  std::size_t failed = 0;
  for (int tries = 0; !left.empty() && tries < 3; ++tries) {
    const std::vector<Status> statuses = batch.step(testing::one_token_each(left));
    std::vector<std::size_t> again;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!statuses[i]) again.push_back(left[i]);
    }
    failed += again.size();
    left = std::move(again);
  }
  EXPECT_TRUE(left.empty());
  return failed;
}

class StepWithAFaultIn : public ::testing::TestWithParam<Phase> {};

TEST_P(StepWithAFaultIn, CanBeTakenAgainAndChangesNoBitOfAnybody) {
  Scenario scenario;
  scenario.runtime.cache = {.policy = "lru", .admission = "always", .tokens = 96};
  const auto length_of = [](std::size_t sequence) { return 150 + 50 * sequence; };
  std::vector<std::vector<StepOutput>> expected;
  for (std::size_t i = 0; i < 3; ++i) {
    expected.push_back(testing::outputs_of(scenario, length_of(i), 12, i + 1));
  }
  std::size_t failed = 0;
  for (std::size_t nth = 1; nth <= 5; ++nth) {
    testing::FaultyRuntime faulty(scenario);
    Batch batch(*faulty.runtime, 3);
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
      ASSERT_TRUE(batch.sequence(i).await_indexes().has_value());
    }
    for (std::size_t step = 0; step < 12; ++step) {
      if (step == 3) faulty.faults->arm({.pieces = {{.phase = GetParam(), .nth = nth}}});
      failed += step_until_done(batch, std::array<std::size_t, 3>{0, 1, 2});
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(batch.outputs(i), expected[i]) << nth;
    }
  }
  EXPECT_GT(failed, 0U);
}

INSTANTIATE_TEST_SUITE_P(Phases, StepWithAFaultIn,
                         ::testing::Values(Phase::update, Phase::select, Phase::fetch,
                                           Phase::attend, Phase::offload, Phase::refill),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST(StepError, OfTensorsThatOverlapOrASequenceThatIsMissingComesFirst) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  const StepMember nobody[] = {{nullptr}};
  EXPECT_EQ(runtime->begin_step(nobody, batch.compute()).error().code, Errc::invalid_argument);
  const StepMember members[] = {{&batch.sequence(0), 2}};
  const auto step = runtime->begin_step(members, batch.compute()).value();
  std::vector<float> numbers(2 * scenario.runtime.shape.query_heads * 16);
  const auto rows = batch.traffic(0).rows(0, {0, 2});
  const StepTensors tensors{.query = numbers.data(),
                            .kv = batch.traffic(0).tensors(rows, 2),
                            .output = numbers.data(),
                            .output_stride = numbers.size() / 2 - 1};
  EXPECT_EQ(step->attend(LayerId{0}, tensors).error().code, Errc::invalid_argument);
}

TEST(StepError, EndingAPromptThatNobodyAnnouncedChangesNothing) {
  for (const char* policy : {"qpq", "wave"}) {
    Scenario scenario;
    scenario.runtime.policy = policy;
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    ASSERT_TRUE(batch.drive(0).prefill(200).has_value());
    decode(batch, 20);
    ASSERT_TRUE(batch.sequence(0).begin_prompt(0).has_value());
    decode(batch, 20);
    EXPECT_EQ(batch.outputs(0), testing::outputs_of(scenario, 200, 40)) << policy;
  }
}

TEST(StepError, ADraftOfWhichNothingIsAcceptedLeavesAShareOfTheLength) {
  Scenario scenario;
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.25};
  std::array<std::size_t, 2> budgets{};
  for (const bool drafts : {false, true}) {
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    ASSERT_TRUE(batch.drive(0).prefill(200).has_value());
    if (drafts) batch.expect_step(std::array{BatchMember{0, 3}}, std::array<std::size_t, 1>{0});
    batch.expect_prompt(0, 200, 200);
    budgets[drafts ? 1 : 0] = batch.sequence(0).budget_tokens();
  }
  EXPECT_EQ(budgets[0], 100U);
  EXPECT_EQ(budgets[1], 100U);
}

TEST(StepError, ATruncationAmidAPromptEndsThePrompt) {
  Scenario scenario;
  scenario.runtime.policy = "oracle";
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.sequence(0).begin_prompt(400).has_value());
  batch.expect_step(std::array{BatchMember{0, 300}});
  ASSERT_TRUE(batch.sequence(0).truncate(150).has_value());
  EXPECT_EQ(decode(batch, 10), testing::outputs_of(scenario, 150, 10));
  batch.drive(0).expect_all_rows_right();
}

TEST(StepError, APromptWhoseIndexingFailsHalfWayIsIndexedLater) {
  Scenario scenario;
  scenario.runtime.policy = "qpq";  // learns from queries that a prompt leaves
  const auto give_prompt = [](Batch& batch, const auto& before_the_last_piece) {
    EXPECT_TRUE(batch.sequence(0).begin_prompt(220).has_value());
    batch.expect_step(std::array{BatchMember{0, 150}});
    before_the_last_piece();
    if (!batch.step(std::array{BatchMember{0, 70}}).front()) {
      batch.expect_step(std::array{BatchMember{0, 70}});
    }
  };
  const auto runtime = scenario.open();
  Batch clean(*runtime, 1);
  give_prompt(clean, [] {});
  const std::vector<StepOutput> expected = decode(clean, 10);
  std::size_t refused = 0;
  for (std::size_t nth = 1; nth <= 24; ++nth) {
    testing::FaultyRuntime faulty(scenario);
    Batch batch(*faulty.runtime, 1);
    give_prompt(batch, [&] { faulty.faults->arm({.allocation_nth = nth}); });
    refused += faulty.faults->counters().allocations_failed;
    faulty.faults->arm({});
    EXPECT_EQ(decode(batch, 10), expected) << nth;
  }
  EXPECT_GE(refused, 5U);
}

TEST(StepError, GatherSaysThatRowsAreNotHere) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(200).has_value());
  Sequence& sequence = batch.sequence(0);
  ASSERT_TRUE(sequence.begin_prompt(2).has_value());  // its tokens attend to all rows
  const auto step = batch.drive(0).begin_step();
  const auto rows = batch.traffic(0).rows(0, {200, 201});
  const auto query = batch.traffic(0).query(0, 200);
  KvView view;
  const Status gathered = step->gather(
      LayerId{0}, {.query = query.data(), .kv = batch.traffic(0).tensors(rows, 1)}, {&view, 1});
  ASSERT_TRUE(gathered.has_value()) << gathered.error().message();
  EXPECT_EQ(step->status(0).error().code, Errc::not_ready);
}

TEST(StepError, TilesOfAPromptTakeMemoryThatOthersCanSpare) {
  Scenario scenario;
  scenario.runtime.placement = Placement::resident_first;
  scenario.backend.device_memory_limit = std::size_t{1536} << 10U;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  ASSERT_TRUE(batch.drive(0).prefill(8000, 500).has_value());  // 2 MB of rows
  ASSERT_TRUE(batch.sequence(1).begin_prompt(64).has_value());
  batch.expect_step(std::array{BatchMember{1, 64}});
}

}  // namespace
}  // namespace terrace
