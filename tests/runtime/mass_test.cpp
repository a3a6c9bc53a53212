// Samples of the attention mass, against the definition: the softmax of each query head over all
// rows so far, summed where the step attended.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <tuple>

#include "runtime/batch.hpp"
#include "runtime/naive_mass.hpp"
#include "runtime/own_policy.hpp"
#include "runtime/retained.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Drive;
using testing::mass_place;
using testing::mass_tolerance;
using testing::naive_mass;
using testing::sampled_mass;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 200;

/// Decodes after a prompt, samples each step, and compares each sample with the definition. Returns
/// their mean.
double expect_right_samples(Scenario scenario, std::size_t steps = 12) {
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(prompt).has_value());
  EXPECT_EQ(drive.sequence().counters().mass_samples, 0U);
  double sum = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_TRUE(drive.step().has_value());
    const double mass = sampled_mass(drive.sequence());
    EXPECT_NEAR(mass, naive_mass(drive.sequence(), traffic, mass_place(0, step), prompt + step),
                mass_tolerance)
        << "step " << step;
    sum += mass;
  }
  return sum / static_cast<double>(steps);
}

class EachPolicysMass : public testing::OfEachPolicy {};

TEST_P(EachPolicysMass, IsTheShareOfTheSoftmaxThatLiesOnRowsAttendedTo) {
  const double mass = expect_right_samples(scenario_);
  EXPECT_GT(mass, 0.2);
  EXPECT_LT(mass, 0.95);
}

TEST_P(EachPolicysMass, IsRightForRowsOfAnyTypeAndWhereverTheyLie) {
  scenario_.runtime.cache = {.policy = "lru", .admission = "always", .tokens = 64};
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    scenario_.runtime.shape.dtype = dtype;
    scenario_.runtime.placement = Placement::resident_first;
    expect_right_samples(scenario_, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachPolicysMass,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

TEST(Mass, IsOfSinksAndWindowWhereNothingIsSelected) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  EXPECT_LT(expect_right_samples(scenario), 0.95);
}

TEST(Mass, FollowsListsOfQueryHeads) {
  Scenario scenario;
  scenario.runtime.policy = "clusterkv";
  scenario.runtime.retrieval.clusterkv.lists = ListScope::query_head;
  expect_right_samples(scenario);
}

/// Expects each of some samples to be 1.
void expect_full_mass(Scenario scenario) {
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(6).has_value());
  const SequenceCounters counters = drive.sequence().counters();
  EXPECT_EQ(counters.mass_samples, 6U);
  EXPECT_NEAR(counters.attention_mass, 6, 1e-6);
}

TEST(Mass, Is1WhereEverythingIsAttendedTo) {
  Scenario scenario;
  scenario.runtime.policy = "full";
  expect_full_mass(scenario);
  scenario.runtime.policy = "quest";
  scenario.runtime.budget.value = 2 * prompt;  // half a window, and a selection of all else
  expect_full_mass(scenario);
  scenario = {};
  scenario.runtime.dense_layers = scenario.runtime.shape.layers;
  expect_full_mass(scenario);
  scenario = {};
  scenario.runtime.when = RetrievalWhen::spilled;
  scenario.runtime.placement = Placement::resident_first;
  expect_full_mass(scenario);
}

/// Builds its index when it is told to; until then steps attend exactly.
class Late final : public testing::OwnPolicy {
 public:
  Late() : OwnPolicy({.name = "late"}) {}

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& /*request*/,
                                               std::size_t /*part*/) const override {
    // Bounded: a test that never releases it has failed, and must not hang.
    for (int i = 0; i < 100'000'000 && !released.load(); ++i) std::this_thread::yield();
    return BuildReport{};
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& /*queue*/,
                                      const Ops& /*ops*/) const override {
    return fail(Errc::unsupported, "nobody selects");
  }

  mutable std::atomic<bool> released{false};
};

TEST(Mass, OfStepsThatAttendExactlyIs1AndCopiesNothing) {
  const auto policy = std::make_shared<Late>();
  Scenario scenario;
  scenario.runtime.own_policy = policy;
  scenario.runtime.until_ready = UntilReady::exact;
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(prompt).has_value());
  for (int i = 0; i < 3; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
  const SequenceCounters counters = batch.sequence(0).counters();
  policy->released.store(true);
  EXPECT_EQ(counters.exact_steps, 3U);
  EXPECT_EQ(counters.mass_samples, 3U);
  EXPECT_EQ(counters.attention_mass, 3);
  EXPECT_EQ(counters.bytes.index, 0U);
}

TEST(Mass, IsSampledEverySoManyStepsInTurn) {
  Scenario scenario;
  scenario.runtime.mass_every = 4;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(batch.drive(i).prefill(prompt).has_value());
  std::array<std::size_t, 2> samples{};
  std::array<std::vector<std::size_t>, 2> steps;
  for (std::size_t step = 1; step <= 12; ++step) {
    batch.expect_step(std::array<std::size_t, 2>{0, 1});
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t now = batch.sequence(i).counters().mass_samples;
      if (now > samples[i]) steps[i].push_back(step);
      samples[i] = now;
    }
  }
  EXPECT_EQ(steps[0], (std::vector<std::size_t>{4, 8, 12}));
  EXPECT_EQ(steps[1], (std::vector<std::size_t>{3, 7, 11}));  // not in the same step
}

TEST(Mass, CopiesTheQueriesOfSampledStepsAloneAndNoneWithoutSamples) {
  constexpr std::size_t steps = 9;
  const auto decode = [](std::size_t every) {
    Scenario scenario;
    scenario.runtime.mass_every = every;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    EXPECT_TRUE(drive.steps(steps).has_value());
    return std::tuple{drive.sequence().counters(), drive.outputs(),
                      runtime->backend().memory(Tier::host).in_use};
  };
  const auto [without, expected, bytes] = decode(0);
  EXPECT_EQ(without.mass_samples, 0U);
  EXPECT_EQ(without.attention_mass, 0);
  const KvShape shape = Scenario{}.runtime.shape;
  const std::size_t query_bytes = shape.group() * shape.head_dim * sizeof(float);
  for (const std::size_t every : {1U, 4U}) {
    const auto [with, outputs, more_bytes] = decode(every);
    EXPECT_EQ(outputs, expected);
    EXPECT_EQ(with.mass_samples, steps / every);
    EXPECT_EQ(with.bytes.index - without.bytes.index, with.mass_samples * query_bytes);
    EXPECT_GE(more_bytes - bytes, query_bytes);
  }
  const auto [too_rare, outputs, same_bytes] = decode(steps + 1);
  EXPECT_EQ(too_rare.mass_samples, 0U);
  EXPECT_EQ(too_rare.bytes.index, without.bytes.index);
  EXPECT_EQ(same_bytes, bytes);
}

TEST(Mass, OfADraftIsItsFirstTokens) {
  Scenario scenario;
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(batch.drive(i).prefill(prompt).has_value());
  Sequence& sequence = batch.sequence(0);
  // The selection that a sequence shows is the last accepted token's.
  batch.expect_step(std::array{BatchMember{0, 4}}, std::array<std::size_t, 1>{1});
  EXPECT_NEAR(sampled_mass(sequence),
              naive_mass(sequence, batch.traffic(0), mass_place(0, 0), prompt), mass_tolerance);
  batch.expect_step(std::array{BatchMember{0, 4}}, std::array<std::size_t, 1>{0});
  const double rejected = sampled_mass(sequence);
  // The same token, decoded alone.
  batch.expect_step(std::array<std::size_t, 1>{0});  // another KV head's turn
  EXPECT_GT(std::abs(sampled_mass(sequence) - rejected), mass_tolerance);
  const auto other = scenario.open();
  Drive alone(*other, batch.traffic(0));
  ASSERT_TRUE(alone.prefill(prompt).has_value());
  ASSERT_TRUE(alone.step().has_value());
  alone.sequence().reset_counters();
  ASSERT_TRUE(alone.step().has_value());
  EXPECT_EQ(sampled_mass(alone.sequence()), rejected);
}

TEST(Mass, IsOfQueriesInTheirType) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    Scenario scenario;
    scenario.runtime.mass_every = 1;
    const auto runtime = scenario.open();
    Batch batch(*runtime, 2);
    batch.round_queries(dtype, /*in_f32=*/false);
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(batch.drive(i).prefill(prompt).has_value());
    for (std::size_t step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < 2; ++i) batch.sequence(i).reset_counters();
      batch.expect_step(std::array<std::size_t, 2>{1, 0});
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const testing::MassPlace place = mass_place(i, 3);
      std::vector<float> query = batch.traffic(i).query(place.layer, prompt + 3);
      std::array<std::byte, sizeof(float)> rounded{};
      for (float& number : query) {
        store_f32(rounded.data(), dtype, 0, number);
        number = load_f32(rounded.data(), dtype, 0);
      }
      EXPECT_NEAR(sampled_mass(batch.sequence(i)),
                  naive_mass(batch.sequence(i), batch.traffic(i), place, prompt + 3, query),
                  mass_tolerance);
    }
  }
}

TEST(Mass, IsNotOfPromptsNorOfStepsThatWereGivenUp) {
  Scenario scenario;
  scenario.runtime.mass_every = 1;
  scenario.runtime.prompts = PromptAttention::retrieved;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  Sequence& sequence = batch.sequence(0);
  batch.expect_prompt(0, prompt, 64);
  batch.expect_step(std::array<std::size_t, 1>{0});
  sequence.reset_counters();
  batch.expect_prompt(0, 100, 40);
  EXPECT_EQ(sequence.counters().mass_samples, 0U);
  batch.give_step_up(std::array{BatchMember{0}}, 2);
  EXPECT_EQ(sequence.counters().mass_samples, 0U);
  batch.expect_step(std::array<std::size_t, 1>{0});
  // The step that was given up had no turn.
  EXPECT_NEAR(sampled_mass(sequence),
              naive_mass(sequence, batch.traffic(0), mass_place(0, 1), sequence.length() - 1),
              mass_tolerance);
}

TEST(Mass, CountsHeldEntriesAndIsNotSampledWhereTokensAreDropped) {
  Scenario scenario = testing::retained::scenario_with("snapkv");
  scenario.runtime.policy = "pqcache";
  scenario.runtime.dropped = DroppedTokens::keep;
  expect_right_samples(scenario, 40);

  scenario = testing::retained::scenario_with("h2o");
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  batch.expect_prompt(0, prompt, prompt);
  for (int i = 0; i < 20; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_EQ(batch.sequence(0).counters().mass_samples, 0U);
}

TEST(Mass, HasNoSampleOfLogitsThatAreNotFinite) {
  Scenario scenario;
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const std::vector<std::byte> rows = traffic.rows(0, {prompt, prompt + 1});
  const KvShape& shape = scenario.runtime.shape;
  std::vector<float> query(shape.query_heads * shape.head_dim, 1.0F);
  query.front() = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> output(query.size());
  const auto step = drive.begin_step();
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const StepTensors tensors{
        .query = query.data(), .kv = traffic.tensors(rows, 1), .output = output.data()};
    ASSERT_TRUE(step->attend(static_cast<LayerId>(layer), tensors).has_value());
  }
  ASSERT_TRUE(testing::end_step(*step).has_value());
  EXPECT_EQ(drive.sequence().counters().mass_samples, 0U);
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_EQ(drive.sequence().counters().mass_samples, 1U);
}

TEST(Mass, OfForksAndBehindAPauseIsRight) {
  Scenario scenario;
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(2).has_value());
  ASSERT_TRUE(drive.sequence().pause().has_value());
  ASSERT_TRUE(drive.sequence().resume().has_value());
  auto twin = drive.sequence().fork();
  ASSERT_TRUE(twin.has_value());
  Drive forked(std::move(*twin), *runtime, traffic);
  const auto expect_right = [&](Drive& one, testing::MassPlace place) {
    one.sequence().reset_counters();
    ASSERT_TRUE(one.step().has_value());
    EXPECT_NEAR(sampled_mass(one.sequence()),
                naive_mass(one.sequence(), traffic, place, prompt + 2), mass_tolerance);
  };
  expect_right(forked, mass_place(1, 0));
  expect_right(drive, mass_place(0, 2));
}

}  // namespace
}  // namespace terrace
