// The memory that a runtime foretells, held against what sequences take: batches, drafts, later
// prompts, retention, limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/memory_life.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace {
namespace {

using testing::expect_said;
using testing::memory_scenario;
using testing::MemoryLife;
using testing::Scenario;

/// A policy of each kind: codes, clusters that come in batches, rests, blocks.
class MemoryNeedIn : public ::testing::TestWithParam<const char*> {
 protected:
  MemoryLife life_{.scenario = memory_scenario(GetParam())};
};

TEST_P(MemoryNeedIn, ABatchSharesAPart) {
  life_.members = 3;
  expect_said(life_);
  life_.queries = Dtype::f16;
  expect_said(life_);
}

TEST_P(MemoryNeedIn, ABatchIsThatOfACacheThatAllShare) {
  life_.scenario.runtime.cache = {.tokens = 700};
  life_.members = 2;
  expect_said(life_);
}

TEST_P(MemoryNeedIn, DraftsFollowsTheirLength) {
  for (const std::size_t draft : {8U, 60U}) {
    life_.draft = draft;
    expect_said(life_);
  }
  life_.scenario.runtime.cache = {.tokens = 256};
  expect_said(life_);
}

TEST_P(MemoryNeedIn, LaterPromptsFollowsTheirLength) {
  for (const auto& prompts : {std::vector<std::size_t>{600, 400}, {100, 900}}) {
    life_.prompts = prompts;
    expect_said(life_);
  }
  life_.prompts = {600, 900};
  life_.piece = 512;
  expect_said(life_);
}

TEST_P(MemoryNeedIn, LaterPromptsThatSelectIsThatOfAllTheirRows) {
  life_.scenario.runtime.prompts = PromptAttention::retrieved;
  life_.prompts = {600, 400};
  expect_said(life_, 1.3);
}

TEST_P(MemoryNeedIn, EachSettingIsThatWhichItTakes) {
  RuntimeOptions& options = life_.scenario.runtime;
  const RuntimeOptions before = options;
  for (const auto set : std::vector<void (*)(RuntimeOptions&)>{
           [](RuntimeOptions& o) { o.dense_layers = 1; },
           [](RuntimeOptions& o) { o.index_residency = IndexResidency::host; },
           [](RuntimeOptions& o) { o.budget = {TokenBudget::Kind::share, 0.2}; },
           [](RuntimeOptions& o) { o.refresh.tokens = 100; },
           [](RuntimeOptions& o) { o.mass_every = 3; },
           [](RuntimeOptions& o) { o.when = RetrievalWhen::spilled; },
           [](RuntimeOptions& o) { o.until_ready = UntilReady::exact; }}) {
    options = before;
    set(options);
    expect_said(life_);
  }
}

TEST_P(MemoryNeedIn, AnAdmittedBatchIsEnough) {
  life_.scenario.runtime.cache = {};
  life_.members = 3;
  life_.draft = 4;
  const MemoryNeed need = life_.scenario.open()->memory_need(life_.query()).value();
  life_.scenario.backend.device_memory_limit = testing::said_of_device(life_, need);
  testing::take_memory(*life_.scenario.open(), life_);  // each step finds room
}

INSTANTIATE_TEST_SUITE_P(Kinds, MemoryNeedIn,
                         ::testing::Values("pqcache", "wave", "signs", "infllm"),
                         [](const auto& name) { return std::string(name.param); });

void expect_lives_said(MemoryLife life) {
  constexpr double most =
      1.6;  // tiles are for all tokens: few are attended to once some are dropped
  for (const std::size_t piece : {1U, 64U, 512U}) {
    life.piece = piece;
    SCOPED_TRACE(piece);
    expect_said(life, most);
  }
  life.piece = 64;
  life.members = 3;
  life.queries = Dtype::bf16;
  expect_said(life, most);
  life.members = 1;
  life.draft = 8;
  expect_said(life, most);
}

class MemoryNeedWithEntries : public ::testing::TestWithParam<std::string> {};

TEST_P(MemoryNeedWithEntries, OfTokensThatAreDroppedIsThatWhichItTakes) {
  MemoryLife life{.scenario = memory_scenario("streaming")};
  life.scenario.runtime.retention_policy = GetParam();
  expect_lives_said(life);
  // After a short prompt the window grows until the first flush, and pages are given back.
  life.prompts = {200};
  life.decoded = 600;
  expect_said(life, 2);
  life.prompts = {600, 900};
  life.piece = 512;
  expect_said(life, 2);
}

std::vector<std::string> retention_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retention_policies()) {
    if (entry.name != "smartkv") names.emplace_back(entry.name);  // it needs a model's gates
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Table, MemoryNeedWithEntries, ::testing::ValuesIn(retention_policies()),
                         [](const auto& name) { return name.param; });

TEST(MemoryNeed, WithEntriesBesideSelectionsIsThatOfBoth) {
  MemoryLife life{.scenario = memory_scenario("pqcache")};
  life.scenario.runtime.dropped = DroppedTokens::keep;
  for (const char* policy : {"recent", "snapkv", "pyramidkv"}) {
    SCOPED_TRACE(policy);
    life.scenario.runtime.retention_policy = policy;
    expect_lives_said(life);
  }
}

TEST(MemoryNeed, OfASmallCacheOfClustersIsThatOfItsTablesToo) {
  MemoryLife life{.scenario = memory_scenario("wave"), .prompts = {5'000}, .piece = 512};
  life.scenario.runtime.cache = {.granularity = CacheGranularity::cluster, .tokens = 64};
  expect_said(life);
}

TEST(MemoryNeed, OfASmallCacheOfRowsIsThatOfItsTablesToo) {
  MemoryLife life{.scenario = memory_scenario("wave"), .prompts = {5'000}, .piece = 512};
  life.scenario.runtime.cache = {.granularity = CacheGranularity::row, .tokens = 64};
  expect_said(life);
}

TEST(MemoryNeed, OfNoTokenIsSaidOfOne) {
  const auto runtime = memory_scenario("pqcache").open();
  const NeedQuery one{.tokens = 500};
  const NeedQuery none{.tokens = 500, .step_tokens = 0, .draft_tokens = 0};
  EXPECT_EQ(runtime->memory_need(one).value(), runtime->memory_need(none).value());
  EXPECT_EQ(runtime->memory_need({.tokens = 500, .step_tokens = 9'999}).value(),
            runtime->memory_need({.tokens = 500, .step_tokens = 500}).value());
}

TEST(MemoryNeed, SharesTheCacheWithThoseThatAreThere) {
  Scenario scenario = memory_scenario("pqcache");
  scenario.runtime.cache = {.tokens = 700};
  const auto runtime = scenario.open();
  const testing::Traffic traffic(scenario.runtime.shape, 1);
  testing::Drive drive(*runtime, traffic);
  const auto of_sharers = [&](std::size_t sharers) {
    return runtime->memory_need({.tokens = 2'000, .cache_sharers = sharers})->device_cache;
  };
  EXPECT_EQ(of_sharers(0), of_sharers(1));
  ASSERT_TRUE(drive.prefill(600).has_value());
  EXPECT_EQ(of_sharers(0), of_sharers(2));
  EXPECT_GT(of_sharers(1), of_sharers(2));
}

TEST(MemoryNeed, BeyondCountingIsRefused) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const auto runtime = memory_scenario("pqcache").open();
  const std::size_t tokens = std::size_t{1} << 31U;
  EXPECT_TRUE(runtime->memory_need({.tokens = tokens, .step_tokens = most}).has_value());
  const auto drafts = runtime->memory_need({.tokens = tokens, .draft_tokens = most});
  ASSERT_FALSE(drafts.has_value());
  EXPECT_EQ(drafts.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(drafts.error().message()), ::testing::HasSubstr("64 bits count"));
}

}  // namespace
}  // namespace terrace
