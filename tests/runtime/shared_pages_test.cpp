// Pages of a stored prefix that several sequences have on the host together.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "api/sequence_state.hpp"
#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Traffic;
using testing::prefixes::keep_prefixes;
using testing::prefixes::prompt;
using testing::prefixes::publish;
using testing::prefixes::Shelf;
using testing::prefixes::step_count;
using testing::prefixes::tokens_of;

class SharedPages : public testing::OfEachPolicy {
 protected:
  std::vector<TokenId> tokens_ = tokens_of(prompt);
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_P(SharedPages, AreOnTheHostOnceForAllSequencesOfAPrefix) {
  const Shelf shelf;
  keep_prefixes(scenario_, shelf);
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const Traffic other = traffic_.branch(100, 2);
  std::optional<Drive> first(std::in_place, runtime->open_sequence({.tokens = tokens_}).value(),
                             *runtime, traffic_);
  first->expect_all_rows_right();
  offload::HostPagePool& pages = state_of(first->sequence()).runtime().host->pages();
  const std::size_t of_one = pages.pages_in_use();
  Drive second(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic_);
  Drive third(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, other);
  const std::uint64_t read = second.sequence().counters().store.read;
  second.expect_all_rows_right();
  EXPECT_EQ(second.sequence().counters().store.read, read) << "all of it is on the host";
  EXPECT_EQ(pages.pages_in_use(), of_one);
  // A sequence that writes has pages of its own.
  ASSERT_TRUE(third.sequence().truncate(100).has_value());
  ASSERT_TRUE(third.prefill(170).has_value());
  ASSERT_TRUE(second.steps(step_count).has_value());
  first.reset();
  second.expect_all_rows_right();
  third.expect_all_rows_right();
}

TEST_P(SharedPages, AreCountedRightAfterAForkThatFoundNoMemory) {
  const Shelf shelf;
  keep_prefixes(scenario_, shelf);
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  for (const bool is_tight : {true, false}) {
    Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic_);
    drive.expect_all_rows_right();
    const MemoryUsage usage = runtime->backend().memory(Tier::host);
    if (is_tight) runtime->backend().set_limit(Tier::host, usage.in_use);
    const auto twin = drive.sequence().fork();
    EXPECT_NE(twin.has_value(), is_tight);
    runtime->backend().set_limit(Tier::host, usage.limit);
  }
  EXPECT_EQ(state_of(*runtime->open_sequence().value()).runtime().host->pages().pages_in_use(), 0U);
}

TEST_P(SharedPages, AreNotThoseThatASequenceWritesInto) {
  const Shelf shelf;
  keep_prefixes(scenario_, shelf);
  publish(scenario_, {.tokens = tokens_});
  const auto runtime = scenario_.open();
  const Traffic other = traffic_.branch(100, 2);
  Drive writer(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, other);
  std::vector<std::byte> row(scenario_.runtime.shape.row_bytes());
  const std::uint32_t position = 101;  // in a block that is on the host for the writer alone now
  ASSERT_TRUE(writer.sequence().read_rows(LayerId{0}, HeadId{0}, {&position, 1}, row));
  Drive reader(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic_);
  ASSERT_TRUE(writer.sequence().truncate(100).has_value());
  ASSERT_TRUE(writer.prefill(170).has_value());
  reader.expect_all_rows_right();
  writer.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Table, SharedPages, ::testing::ValuesIn(testing::selecting_policies()));

}  // namespace
}  // namespace terrace
