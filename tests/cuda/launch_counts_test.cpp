// The calls that a layer makes to the device to have its selected rows, counted on the stand-in.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "cuda_on_host/control.hpp"
#include "kernels/attention_scenario.hpp"
#include "kernels/conversion.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/resolve_scenario.hpp"
#include "kernels/selected.hpp"

namespace terrace {
namespace {

TEST(LaunchCounts, ALayerHasItsRowsAfterTwoLaunches) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    testing::ResolveScenario scenario(scope, 4, 300);
    const cuda_on_host::Device device;
    for (std::uint64_t step = 0; step < 3; ++step) {
      scenario.select(step);
      const std::uint64_t before = device.counts().launches;
      scenario.resolve();
      EXPECT_EQ(device.counts().launches - before, 1U);
      scenario.fetch();
      EXPECT_EQ(device.counts().launches - before, 2U);
      EXPECT_GT(scenario.misses(), 0U);
    }
  }
}

TEST(LaunchCounts, ABatchIsLaunchedLikeACall) {
  std::vector<std::unique_ptr<testing::ResolveScenario>> scenarios;
  std::vector<ResolveRows> resolves;
  std::vector<FetchRows> fetches;
  for (std::uint64_t i = 0; i < 40; ++i) {
    scenarios.push_back(std::make_unique<testing::ResolveScenario>(ListScope::kv_head, 4, 10 + i));
    scenarios.back()->select(i);
    resolves.push_back(scenarios.back()->request());
    fetches.push_back(scenarios.back()->fetch_request());
  }
  const cuda_on_host::Device device;
  const std::uint64_t before = device.counts().launches;
  testing::run(std::span<const ResolveRows>(resolves));
  testing::run(std::span<const FetchRows>(fetches));
  EXPECT_EQ(device.counts().launches - before, 2U);
}

TEST(LaunchCounts, WeightsOfAttentionAreOneLaunchMore) {
  testing::AttentionScenario scenario(
      {.shape = testing::make_shape(2, 2, 16, Dtype::f16), .window = 600});
  std::vector<float> output(scenario.query_.size());
  std::vector<float> sums(2 * scenario.weights_stride());
  const cuda_on_host::Device device;
  const std::uint64_t before = device.counts().launches;
  testing::run(scenario.op(output.data()));
  EXPECT_EQ(device.counts().launches - before, 1U);
  testing::run(scenario.op(output.data(), ListScope::kv_head, sums.data()));
  EXPECT_EQ(device.counts().launches - before, 3U);
}

/// Launches that select among so many candidates, for a KV head of `group` query heads.
std::uint64_t selection_launches(std::size_t group, std::size_t candidates, bool held = false) {
  const KvShape shape = testing::make_shape(group, 1, 8, Dtype::f16);
  testing::PqIndex index(shape, {}, 1000, candidates, 0);
  index.fill_codes();
  testing::Selected selected(shape, {0, candidates}, 10);
  testing::Guarded<std::uint32_t> positions(1, 3);
  testing::Guarded<std::uint32_t> counts(1, 1);
  PqSelect op{.common = selected.common({}), .index = index.view()};
  if (held) op.common.held = {positions.data(), counts.data(), 1};
  const cuda_on_host::Device device;
  const std::uint64_t before = device.counts().launches;
  testing::run(op);
  return device.counts().launches - before;
}

// Logits, the softmax of a group, the choice; many candidates are ranked and listed by tiles.
TEST(LaunchCounts, SelectionsAreTwoToFourLaunches) {
  EXPECT_EQ(selection_launches(1, 8192), 2U);
  EXPECT_EQ(selection_launches(1, 8193), 3U);
  EXPECT_EQ(selection_launches(4, 8192), 3U);
  EXPECT_EQ(selection_launches(4, 8193), 4U);
  EXPECT_EQ(selection_launches(4, 8192, true), 3U);
}

TEST(LaunchCounts, ATokenOfEachOfManySequencesIsStoredByOneLaunch) {
  const KvShape shape = testing::make_shape(1, 2, 8, Dtype::f16);
  const std::vector<std::byte> source(shape.token_bytes());
  std::vector<std::unique_ptr<testing::BlockStore>> stores;
  std::vector<StoreRows> calls;
  for (std::size_t i = 0; i < 64; ++i) {
    stores.push_back(std::make_unique<testing::BlockStore>(shape, 16, 600));
    calls.push_back({.source = {source.data(), source.data(), 0, shape.row_bytes() / 2},
                     .tokens = {9 * i, 9 * i + 1},
                     .target = stores.back()->table(),
                     .shape = shape});
  }
  const cuda_on_host::Device device;
  const std::uint64_t before = device.counts().launches;
  testing::run(std::span<const StoreRows>(calls));
  EXPECT_EQ(device.counts().launches - before, 1U);
}

TEST(LaunchCounts, QueriesOfManySequencesAreConvertedByOneLaunch) {
  std::vector<std::unique_ptr<testing::Conversion>> conversions;
  std::vector<ConvertQueries> calls;
  for (std::size_t i = 0; i < 64; ++i) {
    conversions.push_back(std::make_unique<testing::Conversion>(
        testing::ConversionCase{.shape = testing::make_shape(2, 1, 16, Dtype::f16),
                                .from = i % 2 == 0 ? Dtype::f16 : Dtype::bf16,
                                .tokens = i % 3}));
    calls.push_back(conversions.back()->op());
  }
  const cuda_on_host::Device device;
  const std::uint64_t before = device.counts().launches;
  testing::run(std::span<const ConvertQueries>(calls));
  EXPECT_EQ(device.counts().launches - before, 1U);
}

}  // namespace
}  // namespace terrace
