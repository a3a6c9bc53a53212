// The device memory that a runtime foretells for a sequence, held against one that is there.
#include <gtest/gtest.h>

#include "runtime/scenario.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

/// So many that tokens wait for a batch of them to be indexed.
constexpr std::size_t decoded = 240;

/// Device memory that a sequence takes at most while it decodes up to `length` tokens.
std::size_t measured(const Scenario& scenario, std::size_t length) {
  const auto runtime = scenario.open();
  const std::size_t before = runtime->backend().memory(Tier::device).in_use;
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(length - decoded).has_value());
  runtime->backend().reset_peak();
  EXPECT_TRUE(drive.steps(decoded).has_value());
  return runtime->backend().memory(Tier::device).peak - before;
}

void expect_close(const Scenario& scenario, std::size_t length, double most = 1.25) {
  const std::size_t taken = measured(scenario, length);
  const std::size_t said = scenario.open()->device_bytes(length).value();
  EXPECT_LE(taken, said);
  EXPECT_LE(static_cast<double>(said), most * static_cast<double>(taken));
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) names.emplace_back(entry.name);
  return names;
}

class DeviceBytes : public testing::OfEachPolicy {
 protected:
  DeviceBytes() {
    scenario_.runtime.shape = {.layers = 4, .query_heads = 4, .kv_heads = 2, .head_dim = 32};
    scenario_.runtime.budget.value = 300;
    scenario_.runtime.sink_tokens = 16;
    scenario_.runtime.cache.policy = "none";
  }
};

TEST_P(DeviceBytes, AreThoseThatASequenceTakes) {
  for (const Placement placement : {Placement::offload, Placement::resident_first}) {
    for (const std::size_t length : {500U, 1'500U, 6'000U}) {
      SCOPED_TRACE(::testing::Message()
                   << (placement == Placement::offload ? "offload " : "resident_first ") << length);
      scenario_.runtime.placement = placement;
      expect_close(scenario_, length);
    }
  }
}

TEST_P(DeviceBytes, CountDenseLayersAndStreamedIndexes) {
  scenario_.runtime.dense_layers = 1;
  expect_close(scenario_, 2'000);
  scenario_.runtime.dense_layers = 0;
  scenario_.runtime.index_residency = IndexResidency::host;
  expect_close(scenario_, 2'000);
}

TEST_P(DeviceBytes, FollowABudgetThatIsAShare) {
  scenario_.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.1};
  expect_close(scenario_, 4'000);
}

TEST(DeviceBytesOfEntries, AreThoseThatASequenceTakes) {
  for (const DroppedTokens dropped : {DroppedTokens::release, DroppedTokens::keep}) {
    Scenario scenario;
    scenario.runtime.shape = {.layers = 4, .query_heads = 4, .kv_heads = 2, .head_dim = 32};
    scenario.runtime.policy = dropped == DroppedTokens::keep ? "pqcache" : "streaming";
    scenario.runtime.retention_policy = "snapkv";
    scenario.runtime.dropped = dropped;
    scenario.runtime.budget.value = 300;
    scenario.runtime.cache.policy = "none";
    SCOPED_TRACE(scenario.runtime.policy);
    // Behind a short prompt the window grows until the first flush; a long one is flushed at its
    // end, and a sequence of that length may have come either way.
    expect_close(scenario, 500);
    expect_close(scenario, 1'500, 1.3);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, DeviceBytes, ::testing::ValuesIn(all_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
