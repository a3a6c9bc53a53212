// Calls that a step refuses at once: arguments of one member that an op would refuse, calls of the
// other interface, queues of another backend, sizes beyond counting. The step stays unchanged.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/batch.hpp"

namespace terrace {
namespace {

using testing::Batch;
using ::testing::HasSubstr;
using testing::Scenario;

void expect_refused(const Status& done, const char* reason) {
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(done.error().message()), HasSubstr(reason));
}

/// Two sequences that each bring a token, and a step of both.
class StepArguments : public ::testing::Test {
 protected:
  StepArguments() {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto query = batch_.traffic(i).query(0, 0);
      queries_.insert(queries_.end(), query.begin(), query.end());
      const auto rows = batch_.traffic(i).rows(0, {0, 1});
      rows_.insert(rows_.end(), rows.begin(), rows.end());
    }
    outputs_.resize(queries_.size() + 1);
  }

  [[nodiscard]] const KvShape& shape() const { return scenario_.runtime.shape; }
  [[nodiscard]] StepTensors tensors() {
    return {.query = queries_.data(),
            .kv = {.keys = rows_.data(),
                   .values = rows_.data() + shape().row_bytes() / 2,
                   .token_stride = shape().kv_heads * shape().row_bytes(),
                   .head_stride = shape().row_bytes()},
            .output = outputs_.data()};
  }
  std::unique_ptr<Step> begin() {
    const StepMember members[] = {{&batch_.sequence(0)}, {&batch_.sequence(1)}};
    return runtime_->begin_step(members, batch_.compute()).value();
  }

  Scenario scenario_;
  std::unique_ptr<Runtime> runtime_ = scenario_.open();
  Batch batch_{*runtime_, 2};
  std::vector<float> queries_;
  std::vector<std::byte> rows_;
  std::vector<float> outputs_;
};

TEST_F(StepArguments, ThatAnOpWouldRefuseLeaveTheStepAsItIs) {
  const auto step = begin();
  StepTensors wrong = tensors();
  wrong.kv.head_stride = 0;
  expect_refused(step->attend(LayerId{0}, wrong), "kv.head_stride is 0");
  wrong = tensors();
  wrong.kv.token_stride = 7;
  expect_refused(step->attend(LayerId{0}, wrong), "kv.token_stride is 7");
  wrong = tensors();
  wrong.kv.values = nullptr;
  expect_refused(step->attend(LayerId{0}, wrong), "kv.values are missing");
  wrong = tensors();
  wrong.output = queries_.data();
  expect_refused(step->attend(LayerId{0}, wrong), "output overlaps query");
  wrong = tensors();
  wrong.output_stride = 3;
  expect_refused(step->attend(LayerId{0}, wrong), "output_stride is 3");
  wrong = tensors();
  wrong.query = nullptr;
  expect_refused(step->attend(LayerId{0}, wrong), "query is missing");
  wrong = tensors();
  wrong.dtype = Dtype::f16;
  wrong.output = reinterpret_cast<std::byte*>(outputs_.data()) + 1;
  expect_refused(step->attend(LayerId{0}, wrong), "output is not aligned");
  for (std::size_t layer = 0; layer < shape().layers; ++layer) {
    const Status attended = step->attend(static_cast<LayerId>(layer), tensors());
    ASSERT_TRUE(attended.has_value()) << attended.error().message();
  }
  ASSERT_TRUE(step->end().has_value());
  EXPECT_TRUE(step->status(0).has_value());
  EXPECT_EQ(batch_.sequence(1).length(), 1U);
}

TEST_F(StepArguments, MayLieBetweenTheQueriesThatDecode) {
  // [query, output] of one token after the other.
  const std::size_t numbers = shape().query_heads * shape().head_dim;
  std::vector<float> both(4 * numbers);
  for (std::size_t token = 0; token < 2; ++token) {
    std::copy_n(queries_.data() + token * numbers, numbers, both.data() + 2 * token * numbers);
  }
  StepTensors between = tensors();
  between.query = both.data();
  between.output = both.data() + numbers;
  between.query_stride = between.output_stride = 2 * numbers;
  const auto step = begin();
  const Status attended = step->attend(LayerId{0}, between);
  EXPECT_TRUE(attended.has_value()) << attended.error().message();
  between.output = both.data() + numbers - 1;
  expect_refused(step->attend(LayerId{1}, between), "output overlaps query");
}

TEST_F(StepArguments, AreMembersAndAQueueOfTheRuntime) {
  const auto message = [](const auto& result) {
    return result ? std::string() : std::string(result.error().message());
  };
  EXPECT_THAT(message(runtime_->begin_step({}, batch_.compute())), HasSubstr("without a member"));
  const auto other = scenario_.open();
  const auto queue = other->backend().make_queue({.name = "theirs"}).value();
  const StepMember members[] = {{&batch_.sequence(0)}};
  EXPECT_THAT(message(runtime_->begin_step(members, *queue)), HasSubstr("queue theirs"));
  const auto host = runtime_->backend().make_host_queue({.name = "mine"}).value();
  EXPECT_THAT(message(runtime_->begin_step(members, *host)), HasSubstr("queue mine"));
  const auto step = begin();
  EXPECT_THAT(message(step->begin_next(members)), HasSubstr("the step has not ended"));
}

TEST_F(StepArguments, AreAsManyTokensAsPositionsCanNumber) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t tokens : {std::size_t{1} << 32U, most - 1, most}) {
    const StepMember members[] = {{&batch_.sequence(0), 2}, {&batch_.sequence(1), tokens}};
    const auto step = runtime_->begin_step(members, batch_.compute(), {.queries = Dtype::f16});
    ASSERT_FALSE(step.has_value());
    EXPECT_THAT(std::string(step.error().message()), HasSubstr("member 1 brings"));
    expect_refused(runtime_->memory_need({.tokens = tokens}).map([](const MemoryNeed&) {}),
                   "a sequence may have");
    expect_refused(batch_.sequence(0).begin_prompt(tokens), "more than 2147483648");
  }
  EXPECT_GT(runtime_->memory_need({.tokens = std::size_t{1} << 31U})->device_held,
            std::size_t{1} << 31U);
}

TEST(ModelShape, BeyondCountingIsRefusedAtOnce) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t layers : {std::size_t{20'000}, std::size_t{1} << 40U, most}) {
    Scenario scenario;
    scenario.runtime.shape.layers = layers;
    const auto runtime =
        Runtime::open(scenario.runtime, testing::make_scenario_backend(scenario.backend));
    ASSERT_FALSE(runtime.has_value());
    EXPECT_THAT(std::string(runtime.error().message()), HasSubstr("a model may have 16384"));
  }
  Scenario scenario;
  scenario.runtime.sink_tokens = most;
  EXPECT_FALSE(scenario.runtime.validate().has_value());
  scenario = {};
  scenario.runtime.shape = {.layers = 16'384, .query_heads = 16'384, .kv_heads = 1, .head_dim = 64};
  scenario.runtime.policy = "full";
  const auto counted = scenario.open()->memory_need({.tokens = std::size_t{1} << 31U});
  ASSERT_FALSE(counted.has_value());
  EXPECT_THAT(std::string(counted.error().message()), HasSubstr("more bytes than 64 bits count"));
}

}  // namespace
}  // namespace terrace
