// Faults of a device while a sequence works on it, made to order on the stand-in: the step or the
// prompt ends with an error, and soon; what a lost device is asked next is refused; nothing leaks.
#include <gmock/gmock.h>

#include <chrono>
#include <utility>
#include <vector>

#include "cuda_on_host/control.hpp"
#include "runtime/batch.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

constexpr auto soon = std::chrono::seconds(30);

class CudaFaults : public ::testing::Test {
 protected:
  static constexpr std::size_t prompt = 200;

  CudaFaults() { open(); }

  void open() {
    runtime_.reset();
    device_.set({});
    runtime_ = scenario_.open();
    // The first sequence takes the memory that a runtime keeps for all its sequences.
    Drive drive(*runtime_, traffic_);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    EXPECT_TRUE(drive.steps(2).has_value());
  }

  [[nodiscard]] std::pair<std::size_t, std::size_t> in_use() const {
    const Backend& backend = runtime_->backend();
    return {backend.memory(Tier::device).in_use, backend.memory(Tier::host).in_use};
  }

  static void expect_lost(const Status& status) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Errc::device_lost) << status.error().message();
    EXPECT_THAT(std::string(status.error().message()), ::testing::HasSubstr("device is lost"));
  }

  /// A broken device stays broken: no call waits for it, and its memory is given back all the same.
  void expect_refused_and_given_back(std::pair<std::size_t, std::size_t> before) {
    expect_lost(runtime_->backend().allocate({.bytes = 64}).map([](const Buffer&) {}));
    EXPECT_EQ(in_use(), before);
    runtime_.reset();
    EXPECT_EQ(device_.counts().registered_bytes, 0U);
    EXPECT_LT(std::chrono::steady_clock::now() - begin_, soon);
  }

  cuda_on_host::Device device_;
  Scenario scenario_;
  Traffic traffic_{scenario_.runtime.shape, 1};
  std::unique_ptr<Runtime> runtime_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST_F(CudaFaults, ADeviceLostInTheMiddleOfAStepIsToldAndRefusesTheNextStep) {
  for (const std::uint64_t launch : {1U, 2U, 5U, 9U}) {
    SCOPED_TRACE(launch);
    open();
    begin_ = std::chrono::steady_clock::now();
    const auto before = in_use();
    {
      Drive drive(*runtime_, traffic_);
      ASSERT_TRUE(drive.prefill(prompt).has_value());
      ASSERT_TRUE(drive.steps(2).has_value());
      device_.break_at_launch(launch);
      expect_lost(drive.step());
      EXPECT_EQ(drive.sequence().length(), prompt + 2);
      expect_lost(drive.step());
      EXPECT_EQ(drive.outputs().size(), 2U);
    }
    expect_refused_and_given_back(before);
  }
}

TEST_F(CudaFaults, ADeviceLostInTheMiddleOfAPromptIsToldAndTheSequenceIsLost) {
  for (const std::uint64_t launch : {1U, 3U, 4U}) {  // two of each layer
    SCOPED_TRACE(launch);
    open();
    begin_ = std::chrono::steady_clock::now();
    const auto before = in_use();
    {
      Drive drive(*runtime_, traffic_);
      device_.break_at_launch(launch);
      expect_lost(drive.prefill(prompt));
      EXPECT_FALSE(drive.step().has_value());
    }
    expect_refused_and_given_back(before);
  }
}

TEST_F(CudaFaults, ADeviceLostByACopyIsToldByTheStepThatNeedsIt) {
  const auto before = in_use();
  {
    Drive drive(*runtime_, traffic_);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    device_.fail("cudaMemcpyBatchAsync", {.error = cudaErrorECCUncorrectable});
    expect_lost(drive.steps(3));
    expect_lost(drive.step());
  }
  expect_refused_and_given_back(before);
}

TEST_F(CudaFaults, ACopyThatIsRefusedFailsTheStepOfAllMembersWhichCanBeTakenAgain) {
  const std::vector<std::size_t> all{0, 1, 2};
  testing::Batch batch(*runtime_, all.size());
  for (const std::size_t i : all) batch.expect_prompt(i, prompt, prompt);
  batch.expect_step(all);
  device_.fail("cudaMemcpyBatchAsync", {.error = cudaErrorInvalidValue});
  for (const Status& refused : batch.step(testing::one_token_each(all))) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::device_error) << refused.error().message();
  }
  for (int i = 0; i < 3; ++i) batch.expect_step(all);
}

TEST_F(CudaFaults, AStepWithARefusedLaunchChangesNothingAndCanBeRepeated) {
  const auto expected = outputs_of(scenario_, prompt, 4);
  for (const std::uint64_t launch : {1U, 3U, 6U, 8U}) {
    SCOPED_TRACE(launch);
    open();
    Drive drive(*runtime_, traffic_);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    device_.fail("cudaLaunchKernelEx", {.nth = launch, .error = cudaErrorLaunchOutOfResources});
    const Status refused = drive.step();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::device_error) << refused.error().message();
    ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
    const Status repeated = drive.steps(expected.size());
    ASSERT_TRUE(repeated.has_value()) << repeated.error().message();
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

}  // namespace
}  // namespace terrace
