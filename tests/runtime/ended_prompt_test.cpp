// A prompt that ends before it has come whole is indexed there, wherever its index lies.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "runtime/lives.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Event;
using testing::Scenario;
using testing::StepOutput;

/// Outputs of a prompt of the batch's first sequence, and of tokens after it.
std::vector<StepOutput> alone(const Scenario& scenario, std::size_t prompt, std::size_t decoded) {
  return testing::alone(
      scenario, {.traffic = testing::Traffic(scenario.runtime.shape, 1),
                 .events = {{Event::Kind::prompt, prompt}, {Event::Kind::decode, decoded}}});
}

class EndedPrompt : public testing::OfEachPolicy {};

TEST_P(EndedPrompt, IsIndexedWhereverIndexesLie) {
  for (const IndexResidency residency :
       {IndexResidency::host, IndexResidency::device, IndexResidency::automatic}) {
    for (const UntilReady until : {UntilReady::wait, UntilReady::exact}) {
      scenario_.runtime.index_residency = residency;
      scenario_.runtime.until_ready = UntilReady::wait;
      const std::vector<StepOutput> expected = alone(scenario_, 80, 5);
      scenario_.runtime.until_ready = until;
      const auto runtime = scenario_.open();
      Batch batch(*runtime, 1);
      ASSERT_TRUE(batch.sequence(0).begin_prompt(100).has_value());
      batch.expect_step(std::array{BatchMember{0, 80}});
      ASSERT_TRUE(batch.sequence(0).begin_prompt(0).has_value());
      if (until == UntilReady::exact) {
        ASSERT_TRUE(batch.sequence(0).await_indexes().has_value());
      }
      for (int i = 0; i < 5; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
      EXPECT_EQ(batch.outputs(0), expected) << static_cast<int>(residency);
    }
  }
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) names.emplace_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, EndedPrompt, ::testing::ValuesIn(all_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
