// A store that does not answer: a step that needs its rows ends by the deadline, and can be taken
// again.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;
using testing::prefixes::keep_prefixes;
using testing::prefixes::kept;
using testing::prefixes::publish;
using testing::prefixes::Shelf;
using testing::prefixes::step_count;
using testing::prefixes::tokens_of;

/// A store whose device is at all that is asked of it: nothing can be cancelled any more.
class BusyStore final : public Store {
 public:
  explicit BusyStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  void cancel(const StoreTicket& /*ticket*/) noexcept override {}
  [[nodiscard]] StoreUsage usage() const override { return inner_->usage(); }

 private:
  Result<StoreTicket> do_submit(std::span<PageRequest> batch,
                                const BatchOptions& options) override {
    return inner_->submit(batch, options);
  }

  std::shared_ptr<Store> inner_;
};

/// Whether rows below the host are of a prefix, or of the sequence's own prompt; and whether the
/// store has begun with what it does not answer.
class StoreThatDoesNotAnswer : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(StoreThatDoesNotAnswer, EndsAStepThatCanBeTakenAgain) {
  const auto [of_prefix, begun] = GetParam();
  Scenario scenario;
  const auto expected = outputs_of(scenario, kept, step_count);
  const std::vector<TokenId> tokens = tokens_of(kept);
  const Shelf shelf;
  keep_prefixes(scenario, shelf, /*host_bytes=*/0);
  if (begun) scenario.runtime.below_host.store = std::make_shared<BusyStore>(shelf.store);
  if (of_prefix) publish(scenario, {.tokens = tokens});
  scenario.runtime.deadline = std::chrono::seconds(2);
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(runtime->open_sequence({.tokens = tokens}).value(), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), of_prefix ? kept : 0U);
  ASSERT_TRUE(drive.prefill(kept).has_value());
  for (std::size_t taken = 0; taken < 2; ++taken) {
    const std::size_t length = drive.sequence().length();
    shelf.store->arm({.holds = true});
    const Status late = drive.step();
    shelf.store->arm({});
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().code, begun ? Errc::not_ready : Errc::cancelled)
        << late.error().message();
    EXPECT_EQ(drive.sequence().phase(), SequencePhase::idle);
    EXPECT_EQ(drive.sequence().length(), length);
    EXPECT_EQ(drive.sequence().readable_tokens(), length) << "late rows are not lost";
    while (shelf.store->release()) {
    }
    const Status again = drive.step();
    ASSERT_TRUE(again.has_value()) << again.error().message();
  }
  ASSERT_TRUE(drive.steps(step_count - 2).has_value());
  EXPECT_TRUE(drive.outputs() == expected);
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Rows, StoreThatDoesNotAnswer,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace terrace
