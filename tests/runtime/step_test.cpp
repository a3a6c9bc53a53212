// Steps of a batch: with any other members, each sequence gets the bits that it gets alone.
#include "terrace/runtime/step.hpp"

#include <gmock/gmock.h>

#include <array>

#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::Scenario;
using testing::StepOutput;

constexpr std::size_t count = 5;
constexpr std::size_t length_of(std::size_t sequence) { return 90 + 37 * sequence; }

/// The outputs of a sequence that has the runtime to itself.
std::vector<StepOutput> alone(const Scenario& scenario, std::size_t sequence, std::size_t steps) {
  return testing::outputs_of(scenario, length_of(sequence), steps, sequence + 1);
}

class EachPolicyInABatch : public testing::OfEachPolicy {};

TEST_P(EachPolicyInABatch, GivesTheBitsThatItGivesAlone) {
  for (const auto granularity :
       {CacheGranularity::block, CacheGranularity::cluster, CacheGranularity::row}) {
    for (const Placement placement : {Placement::offload, Placement::resident_first}) {
      Scenario scenario = scenario_;
      scenario.runtime.placement = placement;
      scenario.runtime.cache.granularity = granularity;
      const auto opened = Runtime::open(scenario.runtime, testing::make_scenario_backend({}));
      if (!opened) continue;  // the policy has no clusters
      const auto runtime = scenario.open();
      Batch batch(*runtime, count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
      }
      Rng rng(7);
      std::vector<std::size_t> members{0, 1, 2, 3, 4};
      for (std::size_t step = 0; step < 40; ++step) {
        // Any of them, in any order.
        for (std::size_t i = count; i-- > 1;) std::swap(members[i], members[rng.below(i + 1)]);
        const std::size_t size = 1 + rng.below(count);
        batch.expect_step(std::span(members).first(size));
      }
      for (std::size_t i = 0; i < count; ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(batch.outputs(i), alone(scenario, i, batch.outputs(i).size()));
        batch.drive(i).expect_all_rows_right();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachPolicyInABatch,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

TEST(Step, KeepsEverythingOfAPolicyThatDoes) {
  Scenario scenario;
  scenario.runtime.policy = "full";
  const auto runtime = scenario.open();
  Batch batch(*runtime, count);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  for (std::size_t step = 0; step < 20; ++step)
    batch.expect_step(std::array<std::size_t, 5>{4, 2, 0, 1, 3});
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(batch.outputs(i), alone(scenario, i, 20));
}

TEST(Step, TakesNarrowQueriesAndGivesOutputsAsNarrow) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    std::array<std::vector<std::vector<testing::StepOutput>>, 2> outputs;
    for (const bool in_f32 : {false, true}) {
      const Scenario scenario;
      const auto runtime = scenario.open();
      Batch batch(*runtime, count);
      batch.round_queries(dtype, in_f32);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
      }
      for (std::size_t step = 0; step < 6; ++step) {
        ASSERT_TRUE(batch.sequence(3).begin_prompt(9).has_value());
        batch.expect_step(std::array<testing::BatchMember, 4>{{{2}, {0, 3}, {3, 9}, {1}}});
      }
      for (std::size_t i = 0; i < count; ++i) outputs[in_f32 ? 1 : 0].push_back(batch.outputs(i));
    }
    EXPECT_EQ(outputs[0], outputs[1]);
  }
}

TEST(Step, LeavesOutWhoCannotBegin) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, count);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  ASSERT_TRUE(batch.drive(2).sequence().pause().has_value());
  for (std::size_t step = 0; step < 10; ++step) {
    const auto statuses = batch.step(testing::one_token_each({{0, 1, 2, 3, 4}}));
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(statuses[i].has_value(), i != 2);
    EXPECT_EQ(statuses[2].error().code, Errc::invalid_argument);
  }
  ASSERT_TRUE(batch.drive(2).sequence().resume().has_value());
  for (std::size_t step = 0; step < 10; ++step)
    batch.expect_step(std::array<std::size_t, 5>{0, 1, 2, 3, 4});
  EXPECT_EQ(batch.outputs(2), alone(scenario, 2, 10));
  for (const std::size_t i : {0U, 1U, 3U, 4U}) {
    EXPECT_EQ(batch.outputs(i), alone(scenario, i, 20));
  }
}

TEST(Step, RefusesASequenceThatIsNamedTwiceAndGoesOnWithTheFirst) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  const auto statuses = batch.step(testing::one_token_each({{0, 1, 0}}));
  EXPECT_TRUE(statuses[0].has_value());
  EXPECT_TRUE(statuses[1].has_value());
  EXPECT_FALSE(statuses[2].has_value());
  EXPECT_EQ(batch.outputs(0), alone(scenario, 0, 1));
}

TEST(Step, RefusesASequenceOfAnotherRuntime) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const auto other = scenario.open();
  const auto sequence = other->open_sequence().value();
  const auto compute = runtime->backend().make_queue({.name = "compute"}).value();
  const StepMember members[] = {{sequence.get()}};
  const auto step = runtime->begin_step(members, *compute);
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().code, Errc::invalid_argument);
}

TEST(Step, GivenUpLeavesEverySequenceAsItWas) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  const StepMember members[] = {{&batch.drive(0).sequence()}, {&batch.drive(1).sequence()}};
  {
    const auto step = runtime->begin_step(members, batch.compute()).value();
    EXPECT_FALSE(step->end().has_value());  // no layer was attended
    EXPECT_FALSE(step->attend(LayerId{0}, {}).has_value());
  }
  for (const StepMember& member : members) {
    EXPECT_EQ(member.sequence->phase(), SequencePhase::idle);
  }
  for (std::size_t step = 0; step < 5; ++step) batch.expect_step(std::array<std::size_t, 2>{1, 0});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(batch.outputs(i), alone(scenario, i, 5));
}

}  // namespace
}  // namespace terrace
