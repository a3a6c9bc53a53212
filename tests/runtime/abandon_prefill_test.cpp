// A prefill that is given up leaves nothing behind: no row, no index, no memory.
#include <gmock/gmock.h>

#include "runtime/faulty_runtime.hpp"
#include "runtime/scenario.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

/// How much of a prefill comes before it is given up.
struct Part {
  std::size_t layers = 0;  ///< finished
  std::size_t tokens = 0;  ///< appended of the next one
};

/// Begins a prefill up to `length`, and gives it up behind a part of it.
Status begin_and_abandon(Drive& drive, const Traffic& traffic, std::size_t length, Part part) {
  Sequence& sequence = drive.sequence();
  const std::size_t first = sequence.length();
  std::vector<std::vector<std::byte>> rows;
  TERRACE_TRY(sequence.begin_prefill(length - first));
  const auto append = [&](std::size_t layer, TokenRange tokens) -> Status {
    rows.push_back(traffic.rows(layer, tokens));
    return sequence
        .append(static_cast<LayerId>(layer),
                {.tokens = tokens, .kv = traffic.tensors(rows.back(), tokens.size())},
                drive.compute())
        .map([](Ticket) {});
  };
  Status done;
  for (std::size_t layer = 0; done && layer < part.layers; ++layer) {
    done = append(layer, {first, length});
    if (done) done = sequence.finish(static_cast<LayerId>(layer), drive.compute());
  }
  if (done && part.tokens > 0) done = append(part.layers, {first, first + part.tokens});
  TERRACE_TRY(sequence.abandon_prefill());
  return done;
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) names.emplace_back(entry.name);
  return names;
}

constexpr Part parts[] = {{}, {.tokens = 30}, {.layers = 1}, {.layers = 1, .tokens = 7}, {2, 0}};

class AbandonedPrefill : public testing::OfEachPolicy {
 protected:
  std::unique_ptr<Runtime> runtime_;
  Traffic traffic_{scenario_.runtime.shape, 1};
  Traffic other_{scenario_.runtime.shape, 2};
};

TEST_P(AbandonedPrefill, LeavesAnEmptySequenceEmpty) {
  const auto expected = outputs_of(scenario_, 200, 10);
  for (const Part part : parts) {
    SCOPED_TRACE(::testing::Message() << part.layers << " layers " << part.tokens << " tokens");
    runtime_ = scenario_.open();
    Drive drive(*runtime_, traffic_);
    const std::size_t device = runtime_->backend().memory(Tier::device).in_use;
    const Status given_up = begin_and_abandon(drive, other_, 500, part);
    ASSERT_TRUE(given_up.has_value()) << given_up.error().message();
    EXPECT_EQ(drive.sequence().phase(), SequencePhase::idle);
    EXPECT_EQ(drive.sequence().length(), 0U);
    EXPECT_EQ(drive.sequence().budget_tokens(), 0U);
    // But for tables of pointers to blocks.
    EXPECT_LE(runtime_->backend().memory(Tier::device).in_use, device + 4096);
    ASSERT_TRUE(drive.prefill(200).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

TEST_P(AbandonedPrefill, LeavesALongerSequenceAsItWas) {
  // The second prompt is so long that indexes that learn are made anew.
  std::vector<StepOutput> expected;
  {
    runtime_ = scenario_.open();
    Drive drive(*runtime_, traffic_);
    ASSERT_TRUE(drive.prefill(103).has_value());
    ASSERT_TRUE(drive.steps(20).has_value());
    ASSERT_TRUE(drive.prefill(500).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    expected = drive.outputs();
  }
  for (const Part part : parts) {
    SCOPED_TRACE(::testing::Message() << part.layers << " layers " << part.tokens << " tokens");
    runtime_ = scenario_.open();
    Drive drive(*runtime_, traffic_);
    ASSERT_TRUE(drive.prefill(103).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    for (int twice = 0; twice < 2; ++twice) {
      const Status given_up = begin_and_abandon(drive, other_, 450, part);
      ASSERT_TRUE(given_up.has_value()) << given_up.error().message();
      EXPECT_EQ(drive.sequence().length(), 113U);
      drive.expect_all_rows_right();
    }
    ASSERT_TRUE(drive.steps(10).has_value());
    ASSERT_TRUE(begin_and_abandon(drive, other_, 600, part).has_value());
    ASSERT_TRUE(drive.prefill(500).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

TEST_P(AbandonedPrefill, GivesBackWhatThePromptTook) {
  runtime_ = scenario_.open();
  Drive drive(*runtime_, traffic_);
  ASSERT_TRUE(drive.prefill(100).has_value());
  ASSERT_TRUE(drive.steps(2).has_value());
  const std::size_t device = runtime_->backend().memory(Tier::device).in_use;
  ASSERT_TRUE(drive.sequence().begin_prefill(5'000).has_value());
  EXPECT_GT(runtime_->backend().memory(Tier::device).in_use, device);
  ASSERT_TRUE(drive.sequence().abandon_prefill().has_value());
  // But for tables of pointers to blocks.
  EXPECT_LE(runtime_->backend().memory(Tier::device).in_use, device + 16'384);
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Table, AbandonedPrefill, ::testing::ValuesIn(all_policies()),
                         [](const auto& name) { return name.param; });

TEST(AbandonPrefill, IsForAPrefillAlone) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  const Status refused = drive.sequence().abandon_prefill();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(refused.error().message()),
              ::testing::HasSubstr("abandon_prefill of sequence 0: no prefill is under way"));
}

TEST(AbandonPrefill, MendsASequenceWhosePrefillFailed) {
  const Scenario scenario;
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto expected = outputs_of(scenario, 300, 5);
  for (const Phase phase : {Phase::offload, Phase::update, Phase::cluster, Phase::index}) {
    SCOPED_TRACE(to_string(phase));
    testing::FaultyRuntime faulty(scenario);
    Drive drive(*faulty.runtime, traffic);
    faulty.faults->arm({.pieces = {{.phase = phase, .nth = 1}}});
    static_cast<void>(begin_and_abandon(drive, traffic, 500, {.layers = 2}));
    ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
    faulty.faults->arm({});
    ASSERT_TRUE(drive.prefill(300).has_value());
    ASSERT_TRUE(drive.steps(5).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

}  // namespace
}  // namespace terrace
