// A runtime that is closed before its sequences: an error of their calls, and of nothing else.
#include <gmock/gmock.h>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Scenario;
using testing::Traffic;

class ClosedRuntime : public ::testing::Test {
 protected:
  Status attend(Step& step, std::size_t layer) {
    rows_.push_back(traffic_.rows(layer, {0, 1}));
    return step.attend(static_cast<LayerId>(layer), {.query = query_.data(),
                                                     .kv = traffic_.tensors(rows_.back(), 1),
                                                     .output = output_.data()});
  }

  Scenario scenario_;
  Traffic traffic_{scenario_.runtime.shape, 1};
  std::vector<float> query_ = traffic_.query(0, 0);
  std::vector<float> output_ = query_;
  std::vector<std::vector<std::byte>> rows_;
  std::unique_ptr<Runtime> runtime_ = scenario_.open();
  std::unique_ptr<Sequence> first_ = runtime_->open_sequence().value();
  std::unique_ptr<Sequence> sequence_ = runtime_->open_sequence().value();
  // A queue of the backend goes before the last sequence does.
  std::unique_ptr<Queue> compute_ = runtime_->backend().make_queue({.name = "compute"}).value();
};

template <typename T>
void expect_refused(const Result<T>& done, const std::string& call) {
  ASSERT_FALSE(done.has_value()) << call;
  EXPECT_EQ(done.error().code, Errc::invalid_argument);
  EXPECT_EQ(std::string(done.error().message()),
            call + " of sequence 1: the runtime was closed before the sequence");
}

TEST_F(ClosedRuntime, HasItsSequencesRefuseCalls) {
  runtime_.reset();
  expect_refused(sequence_->begin_prompt(5), "begin_prompt");
  expect_refused(sequence_->await_indexes(), "await_indexes");
  expect_refused(sequence_->truncate(0), "truncate");
  expect_refused(sequence_->pause(), "pause");
  expect_refused(sequence_->resume(), "resume");
  expect_refused(sequence_->fork(), "fork");
  expect_refused(sequence_->read_rows(LayerId{0}, HeadId{0}, {}, {}), "read_rows");
  expect_refused(sequence_->clustering(), "clustering");
  EXPECT_EQ(sequence_->length(), 0U);
  EXPECT_EQ(sequence_->counters().steps, 0U);
}

TEST_F(ClosedRuntime, LetsAStepBeGivenUp) {
  auto step = testing::begin_step(*runtime_, *sequence_, *compute_);
  ASSERT_TRUE(attend(*step, 0).has_value());
  runtime_.reset();
  EXPECT_FALSE(attend(*step, 1).has_value());
  const StepMember members[] = {{sequence_.get()}};
  EXPECT_FALSE(step->begin_next(members).has_value());
  step.reset();
  EXPECT_EQ(sequence_->phase(), SequencePhase::idle);
}

TEST_F(ClosedRuntime, LetsAPromptBeGivenUp) {
  ASSERT_TRUE(sequence_->begin_prompt(50).has_value());
  auto step = testing::begin_step(*runtime_, *sequence_, *compute_, 50);
  rows_.push_back(traffic_.rows(0, {0, 50}));
  ASSERT_TRUE(step->append(LayerId{0}, {.kv = traffic_.tensors(rows_.back(), 50)}).has_value());
  runtime_.reset();
  step.reset();
  EXPECT_EQ(sequence_->phase(), SequencePhase::idle);
  EXPECT_EQ(sequence_->length(), 0U);
}

TEST_F(ClosedRuntime, EndsAStepOfABatch) {
  const StepMember members[] = {{.sequence = first_.get()}, {.sequence = sequence_.get()}};
  auto step = runtime_->begin_step(members, *compute_).value();
  runtime_.reset();
  const std::vector<float> two(2 * query_.size());
  std::vector<float> output = two;
  const auto rows = traffic_.rows(0, {0, 2});
  const Status attended = step->attend(
      LayerId{0}, {.query = two.data(), .kv = traffic_.tensors(rows, 2), .output = output.data()});
  ASSERT_FALSE(attended.has_value());
  EXPECT_EQ(std::string(attended.error().message()), "the runtime was closed before the step");
  EXPECT_FALSE(step->end().has_value());
  step.reset();
  EXPECT_EQ(sequence_->phase(), SequencePhase::idle);
}

TEST_F(ClosedRuntime, LetsSequencesGoInAnyOrder) {
  auto step = testing::begin_step(*runtime_, *sequence_, *compute_);
  ASSERT_TRUE(attend(*step, 0).has_value());
  ASSERT_TRUE(attend(*step, 1).has_value());
  ASSERT_TRUE(testing::end_step(*step).has_value());
  step.reset();
  auto twin = sequence_->fork().value();
  runtime_.reset();
  compute_.reset();
  sequence_.reset();
  EXPECT_EQ(twin->length(), 1U);
  first_.reset();
  twin.reset();
}

}  // namespace
}  // namespace terrace
