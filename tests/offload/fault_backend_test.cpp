#include "doubles/fault_backend.hpp"

#include <gmock/gmock.h>

#include <array>

#include "terrace/offload/host_backend.hpp"

namespace terrace::doubles {
namespace {

using offload::HostBackend;

constexpr Duration patience = std::chrono::seconds(60);

class FaultTest : public testing::Test {
 protected:
  FaultTest() : backend_(FaultBackend::wrap(HostBackend::create({}).value())) {
    queue_ = backend_->make_queue({.name = "fetch"}).value();
  }

  Status run(Phase phase) {
    TERRACE_ASSIGN(const Ticket ticket, queue_->call(phase, [] { return std::size_t{0}; }));
    return wait(ticket, patience);
  }

  std::unique_ptr<FaultBackend> backend_;
  std::unique_ptr<Queue> queue_;
};

TEST_F(FaultTest, AnOpOfAFailingPhaseFailsBeforeItRuns) {
  backend_->arm({.pieces = {{.phase = Phase::attend}}});
  // If the op ran, with nothing to attend to, the output would be 0.
  const std::array<float, 2> query{};
  std::array<float, 2> output{1, 1};
  const DecodeAttention op{
      .shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = query.size()},
      .query = query.data(),
      .output = output.data()};
  ASSERT_TRUE(backend_->ops().decode_attention(*queue_, Phase::attend, op));
  EXPECT_EQ(queue_->drain(patience).error().code, Errc::device_error);
  EXPECT_EQ(output[0], 1);
}

TEST_F(FaultTest, FailsTheNthPieceOfItsPhaseOnly) {
  backend_->arm({.pieces = {{.phase = Phase::fetch, .nth = 2}}, .piece_error = Errc::device_lost});
  EXPECT_TRUE(run(Phase::fetch));
  EXPECT_TRUE(run(Phase::attend));
  EXPECT_TRUE(run(Phase::attend));
  const Status status = run(Phase::fetch);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::device_lost);
  EXPECT_THAT(std::string(status.error().message()), testing::HasSubstr("phase fetch"));
  ASSERT_TRUE(queue_->clear_error());
  EXPECT_TRUE(run(Phase::fetch));
  EXPECT_EQ(backend_->counters().pieces_failed, 1U);
}

TEST_F(FaultTest, AFailedCopyMovesNothing) {
  backend_->arm({.pieces = {{.phase = Phase::refill}}});
  std::byte source{1};
  std::byte target{0};
  const CopyExtent extent{.target = &target, .source = &source, .bytes = 1};
  ASSERT_TRUE(queue_->copy(Phase::refill, {&extent, 1}));
  EXPECT_FALSE(queue_->drain(patience));
  EXPECT_EQ(target, std::byte{0});
}

TEST_F(FaultTest, FailsAtRandomTheSameWayFromTheSameSeed) {
  const auto failures = [&](std::uint64_t seed) {
    backend_->arm({.piece_probability = 0.3, .seed = seed});
    std::vector<bool> failed;
    for (int i = 0; i < 40; ++i) {
      failed.push_back(!run(Phase::model));
      EXPECT_TRUE(queue_->clear_error());
    }
    return failed;
  };
  EXPECT_EQ(failures(1), failures(1));
  EXPECT_NE(failures(1), failures(2));
}

TEST_F(FaultTest, DelaysThePiecesOfAPhase) {
  backend_->arm({.delay = std::chrono::milliseconds(5), .delay_phase = Phase::fetch});
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(run(Phase::attend));
  EXPECT_TRUE(run(Phase::fetch));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(5));
  EXPECT_EQ(backend_->counters().pieces_delayed, 1U);
}

TEST_F(FaultTest, RefusesTheNthAllocationAndLeaksNothing) {
  backend_->arm({.allocation_nth = 2});
  {
    const auto first = backend_->allocate({.bytes = 10}).value();
    EXPECT_EQ(backend_->allocate({.bytes = 10}).error().code, Errc::out_of_memory);
    const auto third = backend_->allocate({.bytes = 10}).value();
    EXPECT_EQ(backend_->memory(Tier::device).in_use, 20U);
  }
  EXPECT_EQ(backend_->memory(Tier::device).in_use, 0U);
  EXPECT_EQ(backend_->counters().allocations_failed, 1U);
}

}  // namespace
}  // namespace terrace::doubles
