// Rows fetched a step ahead: who waits for them changes, what is attended does not, unless a list
// may stay as it was.
#include <gmock/gmock.h>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/offload/fault_backend.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 300;
const std::size_t step_count = 5 + 20 / testing::scenario_slowness;

/// Runs and returns what was counted.
SequenceCounters counted(const Scenario& scenario) {
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(prompt).has_value());
  drive.sequence().reset_counters();
  EXPECT_TRUE(drive.steps(step_count).has_value());
  drive.expect_all_rows_right();
  return drive.sequence().counters();
}

class EarlyFetching : public testing::OfEachPolicy {
 protected:
  EarlyFetching() { scenario_.runtime.budget.value = 60; }

  [[nodiscard]] Scenario early(EarlyFetch mode, double likeness = 0.9) const {
    Scenario scenario = scenario_;
    scenario.runtime.early_fetch = mode;
    scenario.runtime.early_likeness = likeness;
    return scenario;
  }
};

TEST_P(EarlyFetching, ChangesNoBitWhereEveryListIsCorrected) {
  std::size_t variant = 0;
  for (const std::size_t cached : {std::size_t{96}, std::size_t{0}}) {
    for (const IndexResidency residency : {IndexResidency::device, IndexResidency::host}) {
      if (!testing::takes_variant(variant++)) continue;
      scenario_.runtime.cache = {};
      if (cached > 0) scenario_.runtime.cache = {.admission = "always", .tokens = cached};
      scenario_.runtime.index_residency = residency;
      EXPECT_EQ(outputs_of(early(EarlyFetch::exact), prompt, step_count),
                outputs_of(scenario_, prompt, step_count))
          << cached;
    }
  }
}

TEST_P(EarlyFetching, ChangesNoBitInAnyOrderOfCompletion) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  for (std::uint64_t seed = 0; seed < testing::random_rounds(10); ++seed) {
    offload::SeededScheduler scheduler(seed);
    Scenario scenario = early(EarlyFetch::exact);
    scenario.backend.scheduler = &scheduler;
    EXPECT_EQ(outputs_of(scenario, prompt, step_count), expected) << "seed " << seed;
  }
}

TEST_P(EarlyFetching, CountsWhatWasUsefulLateAndWasted) {
  scenario_.runtime.cache.policy = "none";
  const SequenceCounters plain = counted(scenario_);
  const SequenceCounters exact = counted(early(EarlyFetch::exact));
  const std::size_t row_bytes = scenario_.runtime.shape.row_bytes();
  EXPECT_EQ(plain.early.lists, 0U);
  EXPECT_EQ(exact.early.lists, 2 * 2 * step_count);
  EXPECT_EQ(exact.early.corrected, exact.early.lists);
  EXPECT_GT(exact.early.useful, 0U);
  EXPECT_GT(exact.early.wasted, 0U);
  // Each row that is wanted was fetched early or late, and no other but the wasted ones.
  EXPECT_EQ(exact.early.useful + exact.early.late, plain.cache.rows_missed);
  EXPECT_EQ(exact.bytes.demand, plain.bytes.demand + exact.early.wasted * row_bytes);
  EXPECT_EQ(exact.cache.rows_missed, plain.cache.rows_missed);
}

TEST_P(EarlyFetching, AttendsTheLastStepsSelectionWhereNoQueryTurns) {
  const auto runtime = scenario_.open();
  const auto early_runtime = early(EarlyFetch::turned, -1).open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive plain(*runtime, traffic);
  Drive drive(*early_runtime, traffic);
  ASSERT_TRUE(plain.prefill(prompt).has_value());
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.step().has_value());  // nothing is there yet: corrected
  const bool keeps = !early_runtime->traits().gives_pseudo_entries;
  for (std::size_t i = 0; i < step_count; ++i) {
    ASSERT_TRUE(plain.step().has_value());
    ASSERT_TRUE(drive.step().has_value());
    if (!keeps) continue;
    const StepSelection before = plain.sequence().selection(LayerId{1});
    const StepSelection now = drive.sequence().selection(LayerId{1});
    for (std::size_t list = 0; list < now.counts.size(); ++list) {
      const auto ids = now.ids.subspan(list * now.stride, now.counts[list]);
      const auto expected = before.ids.subspan(list * before.stride, now.counts[list]);
      EXPECT_TRUE(std::ranges::equal(ids, expected)) << "step " << i << " list " << list;
    }
  }
  const EarlyCounters counters = drive.sequence().counters().early;
  EXPECT_EQ(counters.corrected, keeps ? 2 * 2U : counters.lists);
  drive.expect_all_rows_right();
}

TEST_P(EarlyFetching, GoesOnAfterTruncatingAndPausing) {
  const auto runtime = early(EarlyFetch::exact).open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  ASSERT_TRUE(drive.sequence().truncate(prompt + 5).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  ASSERT_TRUE(drive.sequence().pause().has_value());
  ASSERT_TRUE(drive.sequence().resume().has_value());
  Drive twin(drive.sequence().fork().value(), *runtime, traffic);
  ASSERT_TRUE(drive.steps(step_count).has_value());
  ASSERT_TRUE(twin.steps(step_count).has_value());
  drive.expect_all_rows_right();
  EXPECT_THAT(std::vector(drive.outputs().end() - static_cast<std::ptrdiff_t>(step_count),
                          drive.outputs().end()),
              ::testing::ContainerEq(twin.outputs()));
}

INSTANTIATE_TEST_SUITE_P(Table, EarlyFetching, ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

TEST(EarlyFetchOfWave, CorrectsAllWhereBoundsOfMassAreThoseOfTheStepsOwnSelection) {
  Scenario scenario;
  scenario.runtime.policy = "wave";
  scenario.runtime.retrieval.wave.estimated_share = 0;
  scenario.runtime.early_fetch = EarlyFetch::turned;
  scenario.runtime.early_likeness = -1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  const EarlyCounters counters = drive.sequence().counters().early;
  EXPECT_GT(counters.lists, 0U);
  EXPECT_EQ(counters.corrected, counters.lists);
}

TEST(EarlyFetchFaults, AFailedFetchLosesNothing) {
  Scenario scenario;
  const auto expected = outputs_of(scenario, 150, 30);
  scenario.runtime.early_fetch = EarlyFetch::exact;
  auto wrapped = offload::FaultBackend::wrap(testing::make_scenario_backend(scenario.backend));
  offload::FaultBackend& faults = *wrapped;
  const auto runtime = scenario.open(std::move(wrapped));
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(150).has_value());
  std::size_t failures = 0;
  for (std::uint64_t nth = 1; drive.outputs().size() < 30; ++nth) {
    faults.arm({.pieces = {{.phase = Phase::fetch, .nth = 1 + nth % 9}}});
    if (drive.step()) continue;
    ++failures;
    ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
    faults.arm({});
    const Status again = drive.step();
    ASSERT_TRUE(again.has_value()) << again.error().message();
  }
  EXPECT_GT(failures, 0U);
  EXPECT_EQ(drive.outputs(), expected);
}

}  // namespace
}  // namespace terrace
