// The memory that a runtime foretells for a sequence, held against what one takes: each policy,
// placement, size of a prompt's pieces, and kind of cache.
#include <gtest/gtest.h>

#include "runtime/memory_life.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::memory_scenario;
using testing::MemoryLife;
using testing::MemoryMeter;
using testing::Scenario;
using testing::Traffic;

/// So many tokens that some wait for their batch to be indexed.
constexpr std::size_t decoded = 240;

/// Device memory that a sequence takes at most while it decodes up to `length` tokens, after a
/// prompt.
std::size_t taken_by_decoding(const Scenario& scenario, std::size_t length) {
  const auto runtime = scenario.open();
  MemoryMeter meter(*runtime);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(length - decoded).has_value());
  testing::forget_prompt(*runtime);
  EXPECT_TRUE(drive.steps(decoded).has_value());
  return meter.taken().device;
}

void expect_held(const Scenario& scenario, std::size_t length, double most = 1.25) {
  const std::size_t taken = taken_by_decoding(scenario, length);
  const MemoryNeed need =
      scenario.open()->memory_need({.tokens = length, .cache_sharers = 1}).value();
  const std::size_t said = need.device_held + need.device_cache;
  EXPECT_LE(taken, said);
  EXPECT_LE(static_cast<double>(said), most * static_cast<double>(taken));
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) names.emplace_back(entry.name);
  return names;
}

class MemoryNeedOf : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] bool has_clusters() const {
    const auto policy =
        policies::make_retrieval_policy(GetParam(), scenario_.runtime.retrieval).value();
    return policy->index_layout(scenario_.runtime.shape)->chunk_clusters > 0;
  }
  /// Each size of a prompt's pieces.
  void expect_pieces_said(const char* what) const {
    for (const std::size_t piece : {1U, 64U, 512U}) {
      SCOPED_TRACE(::testing::Message() << what << ", pieces of " << piece);
      testing::expect_said({.scenario = scenario_, .piece = piece});
    }
  }

  Scenario scenario_ = memory_scenario(GetParam());
};

TEST_P(MemoryNeedOf, DecodingIsThatWhichItTakes) {
  for (const Placement placement : {Placement::offload, Placement::resident_first}) {
    for (const std::size_t length : {500U, 1'500U, 6'000U}) {
      SCOPED_TRACE(::testing::Message()
                   << (placement == Placement::offload ? "offload " : "resident_first ") << length);
      scenario_.runtime.placement = placement;
      expect_held(scenario_, length);
    }
  }
}

TEST_P(MemoryNeedOf, DenseLayersAndStreamedIndexesIsThatWhichTheyTake) {
  scenario_.runtime.dense_layers = 1;
  expect_held(scenario_, 2'000);
  scenario_.runtime.dense_layers = 0;
  scenario_.runtime.index_residency = IndexResidency::host;
  expect_held(scenario_, 2'000);
}

TEST_P(MemoryNeedOf, ABudgetThatIsAShareFollowsIt) {
  scenario_.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.1};
  expect_held(scenario_, 4'000);
}

TEST_P(MemoryNeedOf, ALifeInStepsIsThatWhichItTakes) { expect_pieces_said("no cache"); }

TEST_P(MemoryNeedOf, ALifeWithAllRowsIsThatWhichItTakes) {
  scenario_.runtime.placement = Placement::resident_first;
  expect_pieces_said("no cache");
}

TEST_P(MemoryNeedOf, ALifeWithACacheIsThatWhichItTakes) {
  scenario_.runtime.cache = {};
  expect_pieces_said("blocks");
  scenario_.runtime.cache.granularity = CacheGranularity::row;
  expect_pieces_said("rows");
  if (!has_clusters()) return;
  scenario_.runtime.cache.granularity = CacheGranularity::cluster;
  expect_pieces_said("clusters");
  expect_held(scenario_, 1'500);
}

INSTANTIATE_TEST_SUITE_P(Table, MemoryNeedOf, ::testing::ValuesIn(all_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
