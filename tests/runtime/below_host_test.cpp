// Rows below the host: pages that host memory has no room for lie in a store, and calls that need
// them bring them back. TERRACE_TEST_HOST_PAGES lets all other suites run like that, too.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "runtime/batch.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 300;
constexpr std::size_t step_count = 24;

/// A store that stays within reach of the test.
struct Below {
  doubles::MemoryStore* memory = nullptr;
  std::shared_ptr<doubles::FaultStore> store;

  explicit Below(std::size_t capacity = SIZE_MAX) {
    auto inner = std::make_unique<doubles::MemoryStore>(
        doubles::MemoryStoreOptions{.capacity_bytes = capacity});
    memory = inner.get();
    store = std::make_shared<doubles::FaultStore>(std::move(inner));
  }
};

std::size_t rows_of(const Scenario& scenario, std::size_t tokens) {
  return tokens * scenario.runtime.shape.layers * scenario.runtime.shape.token_bytes();
}

class RowsBelowTheHost : public testing::OfEachPolicy {};

TEST_P(RowsBelowTheHost, ChangeNoBit) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  for (const std::size_t host_bytes : {std::size_t{0}, rows_of(scenario_, prompt) / 2}) {
    const Below below;
    scenario_.runtime.below_host = {.store = below.store, .host_bytes = host_bytes};
    const auto runtime = scenario_.open();
    const Traffic traffic(scenario_.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(step_count).has_value());
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
    const StoreBytes moved = drive.sequence().counters().store;
    EXPECT_GT(moved.written, 0U);
    EXPECT_GT(moved.read, 0U);
    EXPECT_GT(below.memory->usage().pages, 0U);
  }
}

class RowsOfABatch : public testing::OfEachPolicy {};

/// Three sequences whose rows take more than the host has, and whose steps select all of them.
TEST_P(RowsOfABatch, MakeRoomForThoseOfOtherMembers) {
  scenario_.runtime.shape.head_dim = 64;  // rows take most of the memory
  constexpr std::size_t tokens = 1200;
  const std::vector<std::size_t> all{0, 1, 2};
  const auto outputs_with = [&](std::size_t host_memory) {
    const Below below;
    scenario_.runtime.below_host.store = below.store;
    scenario_.backend.host_memory_limit = host_memory;
    const auto runtime = scenario_.open();
    testing::Batch batch(*runtime, all.size());
    for (const std::size_t one : all) batch.expect_prompt(one, tokens, 200);
    for (std::size_t i = 0; i < 8; ++i) batch.expect_step(all);
    std::vector<std::vector<testing::StepOutput>> outputs;
    for (const std::size_t one : all) outputs.push_back(batch.outputs(one));
    return outputs;
  };
  const auto expected = outputs_with(SIZE_MAX);
  for (const std::size_t quarters : {11U, 9U}) {
    EXPECT_TRUE(outputs_with(rows_of(scenario_, tokens) * quarters / 4) == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, RowsBelowTheHost,
                         ::testing::ValuesIn(testing::selecting_policies()));

/// Without those whose indexes take as much as rows do.
INSTANTIATE_TEST_SUITE_P(Table, RowsOfABatch,
                         ::testing::Values("signs", "wave", "pqcache", "clusterkv", "quest",
                                           "infllm"));

TEST(BelowTheHost, FullBlocksAreCopiedAheadOnceHostMemoryIsFilling) {
  const Below below;
  Scenario scenario;
  // All rows have room, and more of it than a quarter is taken.
  scenario.runtime.below_host = {.store = below.store,
                                 .host_bytes = rows_of(scenario, prompt + step_count) * 5 / 4};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  EXPECT_GT(below.memory->usage().pages, 0U);
  const std::uint64_t copied = drive.sequence().counters().store.written;
  EXPECT_EQ(copied, below.memory->usage().page_bytes);
  EXPECT_EQ(drive.sequence().counters().store.read, 0U) << "all of them are still on the host";
  drive.expect_all_rows_right();
}

TEST(BelowTheHost, NothingIsLeftOfAClosedSequence) {
  const Below below;
  Scenario scenario;
  scenario.runtime.below_host = {.store = below.store, .host_bytes = 0};
  {
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(2).has_value());
    EXPECT_GT(below.memory->usage().pages, 0U);
  }
  EXPECT_EQ(below.memory->usage().pages, 0U);
}

TEST(BelowTheHost, RowsLeaveWhereHostMemoryHasNoRoomForThem) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  scenario.backend.host_memory_limit = rows_of(scenario, prompt) * 2 / 3;
  const Traffic traffic(scenario.runtime.shape, 1);
  {
    const auto without = scenario.open();
    Drive drive(*without, traffic);
    const Status refused = drive.prefill(prompt, 20);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  }
  const Below below;
  scenario.runtime.below_host.store = below.store;
  const auto runtime = scenario.open();
  Drive drive(*runtime, traffic);
  const Status given = drive.prefill(prompt, 20);
  ASSERT_TRUE(given.has_value()) << given.error().message();
  ASSERT_TRUE(drive.steps(step_count).has_value());
  drive.expect_all_rows_right();
}

TEST(BelowTheHost, AFullStoreIsHostMemoryThatHasRunOut) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  scenario.backend.host_memory_limit = rows_of(scenario, prompt) * 2 / 3;
  const Below below(rows_of(scenario, 40));
  scenario.runtime.below_host.store = below.store;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  const Status refused = drive.prefill(prompt, 20);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  ASSERT_TRUE(drive.prefill(100, 20).has_value());
  drive.expect_all_rows_right();
}

TEST(BelowTheHost, APausedSequenceMakesRoomForOthers) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  scenario.backend.host_memory_limit = rows_of(scenario, prompt) * 5 / 3;
  const Below below;
  scenario.runtime.below_host.store = below.store;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  const Traffic others(scenario.runtime.shape, 2);
  Drive first(*runtime, traffic);
  ASSERT_TRUE(first.prefill(prompt).has_value());
  ASSERT_TRUE(first.sequence().pause().has_value());
  Drive second(*runtime, others);
  ASSERT_TRUE(second.prefill(prompt).has_value());
  ASSERT_TRUE(first.sequence().resume().has_value());
  ASSERT_TRUE(first.steps(2).has_value());
  first.expect_all_rows_right();
  second.expect_all_rows_right();
}

TEST(BelowTheHost, AForkHasAllRowsToo) {
  Scenario scenario;
  const Below below;
  scenario.runtime.below_host = {.store = below.store, .host_bytes = 0};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(2).has_value());
  auto twin = drive.sequence().fork();
  ASSERT_TRUE(twin.has_value());
  Drive branch(std::move(*twin), *runtime, traffic);
  ASSERT_TRUE(branch.steps(step_count).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  branch.expect_all_rows_right();
  drive.expect_all_rows_right();
  EXPECT_EQ(std::vector(drive.outputs().begin() + 2, drive.outputs().end()), branch.outputs());
}

TEST(BelowTheHost, ABlockThatIsCutAndWrittenAgainIsNotTheStoresAnyMore) {
  Scenario scenario;
  const Below below;
  scenario.runtime.below_host = {.store = below.store, .host_bytes = 0};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  const Traffic other = traffic.branch(prompt - 50, 9);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(1).has_value());
  auto twin = drive.sequence().fork();
  ASSERT_TRUE(twin.has_value());
  Drive branch(std::move(*twin), *runtime, other);
  ASSERT_TRUE(branch.sequence().truncate(prompt - 50).has_value());
  ASSERT_TRUE(branch.steps(60).has_value());
  branch.expect_all_rows_right();
  drive.expect_all_rows_right();
}

/// Takes a step of so many sequences, whose rows are all below the host but for those of the step.
/// Returns how many batches of pages the step has read.
std::uint64_t read_batches_of_a_step(std::size_t sequences) {
  Scenario scenario;
  const auto store = std::make_shared<doubles::MemoryStore>();
  scenario.runtime.below_host = {.store = store, .host_bytes = 0};
  const auto runtime = scenario.open();
  testing::Batch batch(*runtime, sequences);
  std::vector<std::size_t> all(sequences);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const std::size_t one : all) batch.expect_prompt(one, prompt, prompt);
  batch.expect_step(all);
  const std::uint64_t before = store->read_batches();
  batch.expect_step(all);
  return store->read_batches() - before;
}

TEST(BelowTheHost, SelectedRowsOfAllMembersAreReadTogether) {
  const std::uint64_t of_one = read_batches_of_a_step(1);
  EXPECT_GT(of_one, 0U);
  EXPECT_EQ(read_batches_of_a_step(2), of_one);
}

/// One page that a step wants cannot be read: its member alone fails. The lost tokens are given
/// again, and it goes on.
TEST(BelowTheHost, AMemberWhosePageIsDamagedFailsAloneAndRecovers) {
  Scenario scenario;
  const std::vector<std::size_t> both{0, 1};
  const auto expected = [&] {
    const auto runtime = scenario.open();
    testing::Batch batch(*runtime, 2);
    for (const std::size_t one : both) batch.expect_prompt(one, prompt, prompt);
    for (std::size_t i = 0; i < 4; ++i) batch.expect_step(both);
    return batch.outputs(1);
  }();
  const Below below;
  scenario.runtime.below_host = {.store = below.store, .host_bytes = 0};
  const auto runtime = scenario.open();
  testing::Batch batch(*runtime, 2);
  for (const std::size_t one : both) batch.expect_prompt(one, prompt, prompt);
  batch.expect_step(both);
  below.store->arm({.verb = PageVerb::get, .nth = 3, .error = Errc::corrupt});
  const std::vector<Status> ended = batch.step(testing::one_token_each(both));
  below.store->arm({});
  EXPECT_FALSE(ended[0].has_value());
  ASSERT_TRUE(ended[1].has_value()) << ended[1].error().message();
  Sequence& hurt = batch.sequence(0);
  for (int round = 0; round < 3; ++round) {
    const std::size_t readable = hurt.readable_tokens();
    ASSERT_LT(readable, hurt.length());
    ASSERT_TRUE(hurt.truncate(readable).has_value());
    ASSERT_TRUE(batch.drive(0).prefill(prompt + 1).has_value());
    ASSERT_TRUE(batch.drive(0).steps(2).has_value());
    batch.drive(0).expect_all_rows_right();
    below.store->arm({.verb = PageVerb::get, .nth = 3, .error = Errc::corrupt});
    EXPECT_FALSE(batch.drive(0).step().has_value());
    below.store->arm({});
  }
  ASSERT_TRUE(hurt.truncate(hurt.readable_tokens()).has_value());
  for (std::size_t i = 0; i < 2; ++i) batch.expect_step(both);
  EXPECT_TRUE(batch.outputs(1) == expected);
  batch.drive(0).expect_all_rows_right();
}

/// Errors of one read, at every place where a step waits for one.
class EachReadError : public ::testing::TestWithParam<std::tuple<Errc, CacheGranularity>> {};

TEST_P(EachReadError, IsAStatusOfItsStepWhichCanBeRepeated) {
  const auto [code, granularity] = GetParam();
  Scenario scenario;
  scenario.runtime.cache.granularity = granularity;
  const auto expected = outputs_of(scenario, prompt, step_count);
  const Below below;
  scenario.runtime.below_host = {.store = below.store, .host_bytes = 0};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  std::size_t failures = 0;
  for (std::uint64_t nth = 1; drive.outputs().size() < step_count; ++nth) {
    below.store->arm({.verb = PageVerb::get, .nth = 1 + nth % 7, .error = code});
    const std::size_t length = drive.sequence().length();
    const Status done = drive.step();
    below.store->arm({});
    if (done) continue;
    ++failures;
    EXPECT_EQ(done.error().code, code) << done.error().message();
    ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
    EXPECT_EQ(drive.sequence().length(), length);
    const Status again = drive.step();
    ASSERT_TRUE(again.has_value()) << again.error().message();
  }
  EXPECT_GT(failures, 0U) << "the fault never struck";
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(
    Codes, EachReadError,
    ::testing::Combine(::testing::Values(Errc::io_error, Errc::corrupt, Errc::cancelled),
                       ::testing::Values(CacheGranularity::block, CacheGranularity::row)));

}  // namespace
}  // namespace terrace
