// A step takes nothing from the heap after buffers have grown, on the thread that takes the step.
#include <gtest/gtest.h>

#include "runtime/counted_allocations.hpp"
#include "runtime/scenario.hpp"
#include "terrace/offload/caller_queue.hpp"

namespace terrace {
namespace {

using testing::Scenario;

/// Decodes `count` tokens with one step object, and returns how much was allocated meanwhile.
std::size_t allocations_of_steps(const Scenario& scenario, std::size_t count) {
  const auto runtime = scenario.open();
  const auto compute = offload::make_caller_queue(runtime->backend(), {}).value();
  const auto sequence = runtime->open_sequence().value();
  const KvShape& shape = scenario.runtime.shape;
  const std::vector<float> query(shape.query_heads * shape.head_dim, 0.5F);
  std::vector<float> output(query.size());
  const std::vector<std::byte> rows(shape.token_bytes());
  const StepTensors tensors{.query = query.data(),
                            .kv = {.keys = rows.data(),
                                   .values = rows.data() + shape.row_bytes() / 2,
                                   .token_stride = shape.token_bytes(),
                                   .head_stride = shape.row_bytes()},
                            .output = output.data()};
  const StepMember members[] = {{sequence.get()}};
  const auto step = runtime->begin_step(members, *compute).value();
  const auto decode = [&] {
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      EXPECT_TRUE(step->attend(static_cast<LayerId>(layer), tensors).has_value());
    }
    EXPECT_TRUE(testing::end_step(*step).has_value());
  };
  decode();
  std::size_t before = 0;
  for (std::size_t i = 0; i < 200 + count; ++i) {
    if (i == 200) before = testing::allocations();
    EXPECT_TRUE(step->begin_next(members).has_value());
    decode();
  }
  return testing::allocations() - before;
}

TEST(StepAllocations, AreNoneInSteadyState) {
  for (const char* const policy : {"full", "streaming", "pqcache", "signs"}) {
    SCOPED_TRACE(policy);
    Scenario scenario;
    scenario.runtime.policy = policy;
    scenario.runtime.cache.policy = "none";
    // New blocks, and lists that follow the length, take some now and then.
    constexpr std::size_t steps = 100;
    EXPECT_LE(allocations_of_steps(scenario, steps), steps / 2);
  }
}

}  // namespace
}  // namespace terrace
