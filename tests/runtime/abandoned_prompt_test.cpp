// A prompt whose step is abandoned leaves no row, no index and no memory.
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

/// Begins the step of a prompt up to `length`, abandons it after some layers, and ends the prompt.
Status begin_and_abandon(Drive& drive, const Traffic& traffic, std::size_t length,
                         std::size_t layers) {
  const TokenRange tokens{drive.sequence().length(), length};
  std::vector<std::vector<std::byte>> rows;
  Status done;
  {
    const auto step = drive.begin_prompt(tokens.size());
    done = step->status(0);
    for (std::size_t layer = 0; done && layer < layers; ++layer) {
      rows.push_back(traffic.rows(layer, tokens));
      done = step->append(static_cast<LayerId>(layer),
                          {.kv = traffic.tensors(rows.back(), tokens.size())});
    }
  }
  TERRACE_TRY(drive.sequence().begin_prompt(0));
  return done;
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) names.emplace_back(entry.name);
  return names;
}

class AbandonedPrompt : public testing::OfEachPolicy {
 protected:
  std::unique_ptr<Runtime> runtime_;
  Traffic traffic_{scenario_.runtime.shape, 1};
  Traffic other_{scenario_.runtime.shape, 2};
};

TEST_P(AbandonedPrompt, LeavesAnEmptySequenceEmpty) {
  const auto expected = outputs_of(scenario_, 200, 10);
  for (const std::size_t layers : {0U, 1U, 2U}) {
    SCOPED_TRACE(::testing::Message() << layers << " layers");
    runtime_ = scenario_.open();
    Drive drive(*runtime_, traffic_);
    const Status given_up = begin_and_abandon(drive, other_, 500, layers);
    ASSERT_TRUE(given_up.has_value()) << given_up.error().message();
    EXPECT_EQ(drive.sequence().phase(), SequencePhase::idle);
    EXPECT_EQ(drive.sequence().length(), 0U);
    ASSERT_TRUE(drive.prefill(200).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

TEST_P(AbandonedPrompt, LeavesALongerSequenceAsItWas) {
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
  for (const std::size_t layers : {0U, 1U, 2U}) {
    SCOPED_TRACE(::testing::Message() << layers << " layers");
    runtime_ = scenario_.open();
    Drive drive(*runtime_, traffic_);
    ASSERT_TRUE(drive.prefill(103).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    for (int twice = 0; twice < 2; ++twice) {
      const Status given_up = begin_and_abandon(drive, other_, 450, layers);
      ASSERT_TRUE(given_up.has_value()) << given_up.error().message();
      EXPECT_EQ(drive.sequence().length(), 113U);
      drive.expect_all_rows_right();
    }
    ASSERT_TRUE(drive.steps(10).has_value());
    ASSERT_TRUE(begin_and_abandon(drive, other_, 600, layers).has_value());
    ASSERT_TRUE(drive.prefill(500).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

INSTANTIATE_TEST_SUITE_P(Table, AbandonedPrompt, ::testing::ValuesIn(all_policies()),
                         [](const auto& name) { return name.param; });

TEST(AbandonPrompt, MendsASequenceWhosePromptFailed) {
  const Scenario scenario;
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto expected = outputs_of(scenario, 300, 5);
  for (const Phase phase : {Phase::offload, Phase::update, Phase::cluster, Phase::index}) {
    SCOPED_TRACE(to_string(phase));
    testing::FaultyRuntime faulty(scenario);
    Drive drive(*faulty.runtime, traffic);
    faulty.faults->arm({.pieces = {{.phase = phase, .nth = 1}}});
    static_cast<void>(begin_and_abandon(drive, traffic, 500, 2));
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
