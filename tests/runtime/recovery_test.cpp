// After a failure a sequence continues as if nothing had happened: lost work is done again, refused
// work has taken nothing, and memory of work under way stays valid.
#include <gmock/gmock.h>

#include <chrono>
#include <vector>

#include "runtime/faulty_runtime.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::FaultyRuntime;
using testing::Scenario;
using testing::Traffic;

/// Gives a prompt as Drive does, but for what is coded of each layer: that fails.
Status prompt_without_coding(Drive& drive, const Traffic& traffic, std::size_t length,
                             doubles::FaultBackend& faults) {
  const TokenRange tokens{drive.sequence().length(), length};
  const auto step = drive.begin_prompt(tokens.size());
  std::vector<std::vector<std::byte>> rows;  // read until the step has ended
  faults.arm({.pieces = {{.phase = Phase::update, .nth = 0, .queue = "cluster"}}});
  for (std::size_t layer = 0; layer < traffic.shape().layers; ++layer) {
    rows.push_back(traffic.rows(layer, tokens));
    TERRACE_TRY(step->append(static_cast<LayerId>(layer),
                             {.kv = traffic.tensors(rows.back(), tokens.size())}));
  }
  faults.arm({});
  return testing::end_step(*step);
}

/// Takes steps; the first one may fail.
void expect_goes_on(Drive& drive, std::size_t steps) {
  Status first = drive.step();
  if (!first) first = drive.step();
  ASSERT_TRUE(first.has_value()) << first.error().message();
  const Status done = drive.steps(steps - 1);
  ASSERT_TRUE(done.has_value()) << done.error().message();
}

TEST(Recovery, WhatAPromptLostOfItsIndexIsCodedInTheSameBatches) {
  for (const char* const policy : {"wave", "clusterkv", "infllm", "pqcache"}) {
    for (const std::size_t tokens : {5U, 26U, 59U}) {
      SCOPED_TRACE(::testing::Message() << policy << ", " << tokens);
      Scenario scenario;
      scenario.runtime.policy = policy;
      scenario.runtime.budget.value = 120;
      scenario.runtime.retrieval.clusterkv.tokens_per_cluster = 20;
      const Traffic traffic(scenario.runtime.shape, 1);
      const auto plain = scenario.open();
      Drive expected(*plain, traffic);
      FaultyRuntime faulty(scenario);
      Drive drive(*faulty.runtime, traffic);
      for (Drive* const one : {&expected, &drive}) {
        ASSERT_TRUE(one->prefill(300).has_value());
        ASSERT_TRUE(one->steps(3).has_value());
      }
      const std::size_t length = 303 + tokens;
      ASSERT_TRUE(expected.prefill(length).has_value());
      ASSERT_TRUE(prompt_without_coding(drive, traffic, length, *faulty.faults).has_value());
      expect_goes_on(drive, 6);
      ASSERT_TRUE(expected.steps(6).has_value());
      EXPECT_EQ(drive.outputs(), expected.outputs());
      drive.expect_all_rows_right();
    }
  }
}

TEST(Recovery, CodingThatFailedBehindAStepFailsNoCallTwice) {
  struct Case {
    bool forks = false;
    Errc error = Errc::device_error;
  };
  // A prompt that finds no memory for coding is indexed later.
  for (const auto& [forks, error] : {Case{true}, Case{false}, Case{true, Errc::out_of_memory}}) {
    std::size_t failures = 0;
    for (std::uint64_t nth = 1; nth < 30; ++nth) {
      Scenario scenario;
      scenario.runtime.policy = "quest";
      FaultyRuntime faulty(scenario);
      const Traffic traffic(scenario.runtime.shape, 1);
      Drive drive(*faulty.runtime, traffic);
      ASSERT_TRUE(drive.prefill(150).has_value());
      ASSERT_TRUE(drive.steps(30).has_value());
      faulty.faults->arm({.pieces = {{.phase = Phase::update, .nth = nth}}, .piece_error = error});
      const Status stepped = drive.steps(3);
      faulty.faults->arm({});
      if (!stepped) continue;
      const auto next = [&]() -> Status {
        if (!forks) return drive.prefill(400);
        return drive.sequence().fork().map([](const auto&) {});
      };
      if (next()) continue;
      ++failures;
      const Status again = next();
      ASSERT_TRUE(again.has_value()) << nth << ": " << again.error().message();
      expect_goes_on(drive, 3);
      drive.expect_all_rows_right();
    }
    EXPECT_GT(failures, 0U) << "the fault never struck between calls";
  }
}

TEST(Recovery, ALostSequenceKeepsItsMemoryAsLongAsComputeWritesThere) {
  Scenario scenario;
  scenario.runtime.deadline = std::chrono::milliseconds(100);
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  const std::size_t tokens = 100;
  const auto rows = traffic.rows(0, {0, tokens});
  const auto compute = faulty.runtime->backend().make_queue({.name = "compute"}).value();
  auto lost = faulty.runtime->open_sequence().value();
  {
    ASSERT_TRUE(lost->begin_prompt(tokens).has_value());
    const auto step = testing::begin_step(*faulty.runtime, *lost, *compute, tokens);
    faulty.faults->arm({.delay = std::chrono::milliseconds(400), .delay_phase = Phase::update});
    for (std::size_t layer = 0; layer < traffic.shape().layers; ++layer) {
      ASSERT_TRUE(step->append(static_cast<LayerId>(layer), {.kv = traffic.tensors(rows, tokens)})
                      .has_value());
    }
    ASSERT_FALSE(testing::end_step(*step).has_value());
  }
  EXPECT_EQ(lost->phase(), SequencePhase::lost);
  faulty.faults->arm({});
  lost.reset();
  const Status at_rest = compute->drain(std::chrono::nanoseconds(0));
  EXPECT_TRUE(at_rest || at_rest.error().code != Errc::not_ready);
}

TEST(Recovery, QueuesOfStepsMayGoWithThem) {
  Scenario scenario;
  scenario.runtime.index_residency = IndexResidency::host;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(150).has_value());
  Sequence& sequence = drive.sequence();
  const KvShape& shape = traffic.shape();
  for (std::size_t position = 150; position < 160; ++position) {
    const auto compute = runtime->backend().make_queue({.name = "compute"}).value();
    std::vector<float> output(shape.query_heads * shape.head_dim);
    const auto step = testing::begin_step(*runtime, sequence, *compute);
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      const auto row = traffic.rows(layer, {position, position + 1});
      const auto query = traffic.query(layer, position);
      const Status attended = step->attend(
          static_cast<LayerId>(layer),
          {.query = query.data(), .kv = traffic.tensors(row, 1), .output = output.data()});
      ASSERT_TRUE(attended.has_value()) << attended.error().message();
      ASSERT_TRUE(compute->drain(std::chrono::seconds(60)).has_value());
    }
    ASSERT_TRUE(testing::end_step(*step).has_value());
  }
}

TEST(Recovery, AnEmptySequenceIsPausedResumedAndForked) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.sequence().pause().has_value());
  const Status resumed = drive.sequence().resume();
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
  ASSERT_TRUE(drive.sequence().fork().has_value());
  ASSERT_TRUE(drive.prefill(100).has_value());
  ASSERT_TRUE(drive.steps(3).has_value());
}

}  // namespace
}  // namespace terrace
