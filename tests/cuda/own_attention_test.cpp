// Attention that an engine puts on a stream of its own after Step::gather, on the stand-in.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "cuda_on_host/control.hpp"
#include "gate_kernel.hpp"
#include "runtime/scenario.hpp"
#include "terrace/offload/cuda/wrap_queue.hpp"

namespace terrace {
namespace {

// The step waited for its own last work alone, and gave memory away that the engine's attention
// still read.
TEST(OwnAttention, OnAStreamOfTheEnginesIsWaitedForBeforeAStepEnds) {
  constexpr std::size_t prompt = 60;
  const cuda_on_host::Device device;
  testing::Scenario scenario;
  scenario.runtime.deadline = std::chrono::seconds(2);
  const auto runtime = scenario.open();
  const testing::Traffic traffic(scenario.runtime.shape, 1);
  auto own = testing::make_own_queue(runtime->backend());
  const auto stream = static_cast<cudaStream_t>(own.stream.get());
  testing::GateKernel attention;
  testing::Drive drive(runtime->open_sequence().value(), *runtime, std::move(own.queue), traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const auto row = traffic.rows(0, {prompt, prompt + 1});
  const auto query = traffic.query(0, prompt);
  const auto step = drive.begin_step();
  KvView view;
  for (const std::size_t layer : {0UL, 1UL}) {
    const Status gathered =
        step->gather(static_cast<LayerId>(layer),
                     {.query = query.data(), .kv = traffic.tensors(row, 1)}, {&view, 1});
    ASSERT_TRUE(gathered.has_value()) << gathered.error().message();
  }
  attention.launch_on(stream);
  const Status ended = testing::end_step(*step);
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, Errc::not_ready) << ended.error().message();
  attention.open();
}

}  // namespace
}  // namespace terrace
