#include "terrace/offload/sim_backend.hpp"

#include <gmock/gmock.h>

#include <array>
#include <vector>

namespace terrace::offload {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
constexpr Duration patience = std::chrono::hours(24);

class SimTest : public testing::Test {
 protected:
  void SetUp() override {
    SimBackendOptions options{
        .costs = {.link = {.bandwidth_bytes_per_second = 1e6, .latency = microseconds(10)}}};
    options.costs.call[static_cast<std::size_t>(Phase::attend)] = milliseconds(3);
    options.costs.call[static_cast<std::size_t>(Phase::cluster)] = milliseconds(8);
    sim_ = SimBackend::create(options).value();
    start_ = sim_->clock().now();
  }

  std::unique_ptr<Queue> queue(const char* name) {
    return sim_->make_queue({.name = name}).value();
  }
  Duration elapsed() { return sim_->clock().now() - start_; }
  static auto nothing() {
    return [] { return std::size_t{0}; };
  }
  static auto moved(std::size_t bytes) {
    return [bytes] { return bytes; };
  }

  std::unique_ptr<SimBackend> sim_;
  TimePoint start_;
  std::array<float, 2> numbers_{};
};

TEST_F(SimTest, QueuesRunSideBySideInVirtualTime) {
  const auto compute = queue("compute");
  const auto cluster = sim_->make_host_queue({.name = "cluster"}).value();
  ASSERT_TRUE(cluster->call(Phase::cluster, nothing()));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(compute->call(Phase::attend, nothing()));
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_EQ(elapsed(), milliseconds(6));
  ASSERT_TRUE(cluster->drain(patience));
  EXPECT_EQ(elapsed(), milliseconds(8));
}

TEST_F(SimTest, ATransferCostsLatencyAndBytesAndMovesNothing) {
  const auto offload = queue("offload");
  std::vector<std::byte> source(5000, std::byte{1});
  std::vector<std::byte> target(5000);
  const CopyExtent extent{.target = target.data(), .source = source.data(), .bytes = 5000};
  ASSERT_TRUE(offload->copy(Phase::offload, {&extent, 1}));
  ASSERT_TRUE(offload->drain(patience));
  EXPECT_EQ(elapsed(), milliseconds(5) + microseconds(10));
  EXPECT_EQ(target, std::vector<std::byte>(5000));
}

TEST_F(SimTest, OneDirectionIsSharedAndTheOtherIsFree) {
  const auto fetch = queue("fetch");
  const auto refill = queue("refill");
  const auto offload = queue("offload");
  ASSERT_TRUE(fetch->call(Phase::fetch, moved(1000)));
  ASSERT_TRUE(refill->call(Phase::refill, moved(2000)));
  ASSERT_TRUE(offload->call(Phase::offload, moved(500)));
  ASSERT_TRUE(offload->drain(patience));
  EXPECT_EQ(elapsed(), microseconds(510));
  ASSERT_TRUE(refill->drain(patience));
  EXPECT_EQ(elapsed(), microseconds(3020));
}

TEST_F(SimTest, AWaitBetweenQueuesIsPaidOnceAndCounted) {
  const auto compute = queue("compute");
  const auto fetch = queue("fetch");
  ASSERT_TRUE(fetch->call(Phase::fetch, moved(1000)));
  ASSERT_TRUE(compute->wait_for(*fetch->record()));
  ASSERT_TRUE(compute->call(Phase::attend, nothing()));
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_EQ(elapsed(), microseconds(1010) + milliseconds(3));
  EXPECT_EQ(compute->counters().waited, microseconds(1010));
}

TEST_F(SimTest, AWaitEndsAtItsVirtualDeadline) {
  const auto compute = queue("compute");
  const auto ticket = compute->call(Phase::attend, nothing());
  EXPECT_EQ(wait(*ticket, milliseconds(1)).error().code, Errc::not_ready);
  EXPECT_EQ(elapsed(), milliseconds(1));
  EXPECT_TRUE(wait(*ticket, milliseconds(2)));
  EXPECT_EQ(elapsed(), milliseconds(3));
}

TEST_F(SimTest, WorkGoesOnWhileTheHostSpendsTime) {
  const auto compute = queue("compute");
  const auto ticket = compute->call(Phase::attend, nothing());
  sim_->advance(milliseconds(10));
  EXPECT_TRUE(wait(*ticket, Duration{}));
  EXPECT_EQ(elapsed(), milliseconds(10));
}

TEST_F(SimTest, OpsTakeTheirPhasesTime) {
  const auto compute = queue("compute");
  std::vector<float> output(2);
  const DecodeAttention of_nothing{
      .shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 2},
      .query = numbers_.data(),
      .output = output.data()};
  ASSERT_TRUE(sim_->ops().decode_attention(*compute, Phase::attend, of_nothing));
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_EQ(elapsed(), milliseconds(3));
}

TEST_F(SimTest, StoringRowsOnTheHostIsATransfer) {
  const auto offload = queue("offload");
  constexpr std::size_t bytes = 50;  // of a key, and of a value
  const std::vector<std::byte> source(10 * bytes);
  std::vector<std::byte> memory(20 * bytes);
  std::byte* const block = memory.data();
  const StoreRows rows{.source = {source.data(), source.data(), bytes, bytes},
                       .tokens = {.begin = 0, .end = 10},
                       .target = {.blocks = &block, .block_tokens = 10},
                       .shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 25},
                       .crosses_link = true};
  ASSERT_TRUE(sim_->ops().store_rows(*offload, Phase::offload, rows));
  ASSERT_TRUE(offload->drain(patience));
  EXPECT_EQ(elapsed(), microseconds(1010));
}

}  // namespace
}  // namespace terrace::offload
