// Handles are closed in any order, and messages are each thread's own.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "bindings_c/c_batch.hpp"

namespace terrace::testing {
namespace {

using Members = std::vector<BatchMember>;

/// A step of two sequences that is half-way, on a queue of its own thread or of the backend's.
struct HalfWay {
  explicit HalfWay(bool own_thread) : config(make_config()), runtime(open_runtime()) {
    terrace_queue* made = nullptr;
    EXPECT_OK(own_thread ? terrace_queue_wrap_caller(runtime.get(), nullptr, &made)
                         : terrace_queue_open(runtime.get(), nullptr, &made));
    compute.reset(made);
    CBatch batch(runtime.get(), made, small_shape, 2);
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_OK(terrace_sequence_begin_prompt(batch.sequence(i).get(), 40));
    }
    batch.step(Members{{0, 40}, {1, 40}});
    layer = batch.layer(0, Members{{0}, {1}});
    step = batch.begin(Members{{0}, {1}});
    EXPECT_OK(terrace_step_attend(step.get(), 0, &layer.tensors));
    first = std::move(batch.sequence(0));
    second = std::move(batch.sequence(1));
  }

  void close(int handle) {
    if (handle == 0) config.reset();
    if (handle == 1) runtime.reset();
    if (handle == 2) compute.reset();
    if (handle == 3) step.reset();
    if (handle == 4) first.reset();
    if (handle == 5) second.reset();
  }

  CBatch::Layer layer;  ///< read and written until the step is closed
  ConfigHandle config;
  RuntimeHandle runtime;
  QueueHandle compute;
  StepHandle step;
  SequenceHandle first;
  SequenceHandle second;
};

class CHandles : public ::testing::TestWithParam<bool> {};

TEST_P(CHandles, AreClosedInAnyOrder) {
  std::array<int, 5> order{1, 2, 3, 4, 5};
  std::size_t number = 0;
  do {
    if (!takes_variant(number++)) continue;
    HalfWay half_way(GetParam());
    if (number % 2 == 0) half_way.close(0);
    for (const int handle : order) half_way.close(handle);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(number, 120U);
}

INSTANTIATE_TEST_SUITE_P(Queues, CHandles, ::testing::Bool(), [](const auto& own_thread) {
  return own_thread.param ? "of_the_caller" : "of_the_backend";
});

TEST(CHandlesOfAStep, AreCountedWhileTheStepKeepsThem) {
  HalfWay half_way(true);
  half_way.first.reset();
  EXPECT_EQ(terrace_runtime_sequences(half_way.runtime.get()), 2U);
  half_way.step.reset();
  EXPECT_EQ(terrace_runtime_sequences(half_way.runtime.get()), 1U);
}

/// Rows that reach the host long after the deadline: the sequence is lost with its step.
TEST(CHandlesOfAStep, MayGoBeforeASequenceThatIsLostInIt) {
  RuntimeHandle runtime = open_runtime({{"deadline", "20ms"}, {"link.bandwidth", "2kB/s"}});
  terrace_queue* made = nullptr;
  EXPECT_OK(terrace_queue_open(runtime.get(), nullptr, &made));
  QueueHandle compute(made);
  CBatch batch(runtime.get(), made, small_shape, 1);
  const Members members{{0, 16}};
  std::vector<CBatch::Layer> layers;
  for (const std::size_t i : {0U, 1U}) layers.push_back(batch.layer(i, members));
  StepHandle step = batch.begin(members);
  for (const std::uint32_t i : {0U, 1U}) {
    EXPECT_OK(terrace_step_attend(step.get(), i, &layers[i].tensors));
  }
  static_cast<void>(terrace_step_end(step.get(), nullptr));
  EXPECT_NE(terrace_step_status(step.get(), 0), TERRACE_OK);
  ASSERT_EQ(terrace_sequence_phase(batch.sequence(0).get()), TERRACE_PHASE_LOST);
  expect_failure(terrace_sequence_truncate(batch.sequence(0).get(), 0), TERRACE_INVALID_ARGUMENT,
                 "lost");
  runtime.reset();
  compute.reset();
  step.reset();
  batch.sequence(0).reset();
}

TEST(CMessage, IsEmptyInAThreadWithoutFailures) {
  std::string message = "none";
  std::thread([&] { message = terrace_message(); }).join();
  EXPECT_EQ(message, "");
}

TEST(CMessage, IsOfTheThreadThatFailed) {
  terrace_config* config = nullptr;
  EXPECT_EQ(terrace_config_set(config, "seed", "1"), TERRACE_INVALID_ARGUMENT);
  const std::string own = terrace_message();
  std::string others;
  std::thread([&] {
    terrace_config_close(config);
    EXPECT_EQ(terrace_runtime_open(nullptr, nullptr, nullptr), TERRACE_INVALID_ARGUMENT);
    others = terrace_message();
  }).join();
  EXPECT_EQ(std::string(terrace_message()), own);
  EXPECT_THAT(own, ::testing::HasSubstr("terrace_config_set"));
  EXPECT_THAT(others, ::testing::HasSubstr("terrace_runtime_open"));
}

TEST(CMessage, StaysWhereACallSucceeds) {
  EXPECT_EQ(terrace_config_create(nullptr), TERRACE_INVALID_ARGUMENT);
  const std::string message = terrace_message();
  const ConfigHandle config = make_config();
  EXPECT_EQ(std::string(terrace_message()), message);
}

}  // namespace
}  // namespace terrace::testing
