// Steps of a batch: whoever takes part, each sequence gets the bits that it gets alone.
#include "terrace/runtime/step.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using std::chrono::seconds;
using testing::Drive;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

/// Sequences of one runtime that decode together on one compute queue.
class Batch {
 public:
  Batch(Runtime& runtime, std::size_t count)
      : runtime_(runtime),
        shape_(runtime.options().shape),
        compute_(runtime.backend().make_queue({.name = "compute"}).value()) {
    for (std::size_t i = 0; i < count; ++i) {
      traffics_.push_back(std::make_unique<Traffic>(shape_, i + 1));
      drives_.push_back(std::make_unique<Drive>(runtime, *traffics_.back()));
    }
    outputs_.resize(count);
  }

  /// A step of those sequences. Returns what became of each.
  std::vector<Status> step(const std::vector<std::size_t>& members) {
    std::vector<Sequence*> sequences;
    for (const std::size_t member : members) sequences.push_back(&drives_[member]->sequence());
    std::vector<std::size_t> positions;
    for (const Sequence* sequence : sequences) positions.push_back(sequence->length());
    const auto step = runtime_.begin_step(sequences, *compute_).value();
    const std::size_t floats = shape_.query_heads * shape_.head_dim;
    std::vector<float> output(shape_.layers * members.size() * floats);
    std::vector<std::vector<float>> queries;
    std::vector<std::vector<std::byte>> rows;
    for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
      queries.emplace_back();
      rows.emplace_back();
      for (std::size_t i = 0; i < members.size(); ++i) {
        const auto query = traffics_[members[i]]->query(layer, positions[i]);
        queries.back().insert(queries.back().end(), query.begin(), query.end());
        const auto row = traffics_[members[i]]->rows(layer, {positions[i], positions[i] + 1});
        rows.back().insert(rows.back().end(), row.begin(), row.end());
      }
      const StepTensors tensors{.query = queries.back().data(),
                                .kv = {.keys = rows.back().data(),
                                       .values = rows.back().data() + shape_.row_bytes() / 2,
                                       .token_stride = shape_.kv_heads * shape_.row_bytes(),
                                       .head_stride = shape_.row_bytes()},
                                .output = output.data() + layer * members.size() * floats};
      const Status attended = step->attend(static_cast<LayerId>(layer), tensors);
      EXPECT_TRUE(attended.has_value()) << attended.error().message();
    }
    EXPECT_TRUE(step->end().has_value());
    EXPECT_TRUE(compute_->drain(seconds{20}).has_value());
    std::vector<Status> statuses;
    for (std::size_t i = 0; i < members.size(); ++i) {
      statuses.push_back(step->status(i));
      if (!step->status(i)) continue;
      StepOutput& all = outputs_[members[i]].emplace_back();
      for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
        const float* const of_layer = output.data() + (layer * members.size() + i) * floats;
        all.insert(all.end(), of_layer, of_layer + floats);
      }
    }
    return statuses;
  }

  /// The same, where nobody may fail.
  void expect_step(const std::vector<std::size_t>& members) {
    for (const Status& status : step(members)) {
      EXPECT_TRUE(status.has_value()) << status.error().message();
    }
  }

  [[nodiscard]] Drive& drive(std::size_t i) noexcept { return *drives_[i]; }
  [[nodiscard]] Queue& compute() noexcept { return *compute_; }
  [[nodiscard]] const std::vector<StepOutput>& outputs(std::size_t i) const noexcept {
    return outputs_[i];
  }

 private:
  Runtime& runtime_;
  KvShape shape_;
  std::unique_ptr<Queue> compute_;
  std::vector<std::unique_ptr<Traffic>> traffics_;
  std::vector<std::unique_ptr<Drive>> drives_;
  std::vector<std::vector<StepOutput>> outputs_;
};

constexpr std::size_t count = 5;
constexpr std::size_t length_of(std::size_t sequence) { return 90 + 37 * sequence; }

/// The outputs of a sequence that has the runtime to itself.
std::vector<StepOutput> alone(const Scenario& scenario, std::size_t sequence, std::size_t steps) {
  return testing::outputs_of(scenario, length_of(sequence), steps, sequence + 1);
}

class EachPolicyInABatch : public testing::OfEachPolicy {};

TEST_P(EachPolicyInABatch, GivesTheBitsThatItGivesAlone) {
  for (const CacheGranularity granularity : {CacheGranularity::block, CacheGranularity::cluster}) {
    for (const Placement placement : {Placement::offload, Placement::resident_first}) {
      Scenario scenario = scenario_;
      scenario.runtime.placement = placement;
      scenario.runtime.cache.granularity = granularity;
      const auto opened = Runtime::open(scenario.runtime, testing::make_scenario_backend({}));
      if (!opened) continue;  // the policy has no clusters
      const auto runtime = scenario.open();
      Batch batch(*runtime, count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
      }
      Rng rng(7);
      std::vector<std::size_t> members{0, 1, 2, 3, 4};
      for (std::size_t step = 0; step < 40; ++step) {
        // Any of them, in any order.
        for (std::size_t i = count; i-- > 1;) std::swap(members[i], members[rng.below(i + 1)]);
        const std::size_t size = 1 + rng.below(count);
        batch.expect_step({members.begin(), members.begin() + static_cast<std::ptrdiff_t>(size)});
      }
      for (std::size_t i = 0; i < count; ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(batch.outputs(i), alone(scenario, i, batch.outputs(i).size()));
        batch.drive(i).expect_all_rows_right();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachPolicyInABatch,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

TEST(Step, KeepsEverythingOfAPolicyThatDoes) {
  Scenario scenario;
  scenario.runtime.policy = "full";
  const auto runtime = scenario.open();
  Batch batch(*runtime, count);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  for (std::size_t step = 0; step < 20; ++step) batch.expect_step({4, 2, 0, 1, 3});
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(batch.outputs(i), alone(scenario, i, 20));
}

TEST(Step, LeavesOutWhoCannotBegin) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, count);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  ASSERT_TRUE(batch.drive(2).sequence().pause().has_value());
  for (std::size_t step = 0; step < 10; ++step) {
    const auto statuses = batch.step({0, 1, 2, 3, 4});
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(statuses[i].has_value(), i != 2);
    EXPECT_EQ(statuses[2].error().code, Errc::invalid_argument);
  }
  ASSERT_TRUE(batch.drive(2).sequence().resume().has_value());
  for (std::size_t step = 0; step < 10; ++step) batch.expect_step({0, 1, 2, 3, 4});
  EXPECT_EQ(batch.outputs(2), alone(scenario, 2, 10));
  for (const std::size_t i : {0U, 1U, 3U, 4U}) {
    EXPECT_EQ(batch.outputs(i), alone(scenario, i, 20));
  }
}

TEST(Step, RefusesASequenceThatIsNamedTwiceAndGoesOnWithTheFirst) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  const auto statuses = batch.step({0, 1, 0});
  EXPECT_TRUE(statuses[0].has_value());
  EXPECT_TRUE(statuses[1].has_value());
  EXPECT_FALSE(statuses[2].has_value());
  EXPECT_EQ(batch.outputs(0), alone(scenario, 0, 1));
}

TEST(Step, RefusesASequenceOfAnotherRuntime) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const auto other = scenario.open();
  const auto sequence = other->open_sequence().value();
  const auto compute = runtime->backend().make_queue({.name = "compute"}).value();
  Sequence* const sequences[] = {sequence.get()};
  const auto step = runtime->begin_step(sequences, *compute);
  ASSERT_FALSE(step.has_value());
  EXPECT_EQ(step.error().code, Errc::invalid_argument);
}

TEST(Step, GivenUpLeavesEverySequenceAsItWas) {
  Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(length_of(i)).has_value());
  }
  Sequence* const sequences[] = {&batch.drive(0).sequence(), &batch.drive(1).sequence()};
  {
    const auto step = runtime->begin_step(sequences, batch.compute()).value();
    EXPECT_FALSE(step->end().has_value());  // no layer was attended
    EXPECT_FALSE(step->attend(LayerId{0}, {}).has_value());
  }
  for (Sequence* const sequence : sequences) EXPECT_EQ(sequence->phase(), SequencePhase::idle);
  for (std::size_t step = 0; step < 5; ++step) batch.expect_step({1, 0});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(batch.outputs(i), alone(scenario, i, 5));
}

}  // namespace
}  // namespace terrace
