// Prompts that come in steps, in pieces of any size and beside others that decode: outputs are
// exact attention's, and no bit depends on how a prompt is cut.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>

#include "api/sequence_state.hpp"
#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
#include "terrace/core/dtype.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

constexpr std::size_t prompt = 560;  // more than a piece of attention

void decode(Batch& batch, std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
}

struct Life {
  std::vector<StepOutput> outputs;
  std::size_t budget = 0;
};

using GivePrompt = decltype(&Batch::expect_prompt);

/// A prompt in pieces, some steps, another turn in pieces, some steps.
Life live(const Scenario& scenario, std::size_t piece, GivePrompt give = &Batch::expect_prompt) {
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  (batch.*give)(0, prompt, piece);
  decode(batch, 8);
  (batch.*give)(0, 70, piece);
  decode(batch, 8);
  batch.drive(0).expect_all_rows_right();
  return {batch.outputs(0), batch.sequence(0).budget_tokens()};
}

class EachPolicyInPieces : public testing::OfEachPolicy {};

TEST_P(EachPolicyInPieces, GivesTheSameBitsHoweverAPromptIsCut) {
  for (const Placement placement : {Placement::offload, Placement::resident_first}) {
    Scenario scenario = scenario_;
    scenario.runtime.placement = placement;
    const Life whole = live(scenario, 1000);
    for (const std::size_t piece : {1U, 64U, 333U}) {
      if (piece == 1 && placement != Placement::offload) continue;  // so many steps take long
      SCOPED_TRACE(piece);
      const Life pieces = live(scenario, piece);
      ASSERT_EQ(pieces.outputs.size(), whole.outputs.size());
      for (std::size_t token = 0; token < whole.outputs.size(); ++token) {
        ASSERT_EQ(pieces.outputs[token], whole.outputs[token]) << "token " << token;
      }
    }
  }
}

TEST_P(EachPolicyInPieces, DecodesAsBehindAPromptThatItsEngineAttendedTo) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.expect_prompt(0, prompt, 100);
  decode(batch, 20);
  const std::vector<StepOutput>& all = batch.outputs(0);
  const std::vector<StepOutput> steps(all.end() - 20, all.end());
  EXPECT_EQ(steps, testing::outputs_of(scenario_, prompt, 20));
}

TEST_P(EachPolicyInPieces, DecodesAsBehindAPromptWhoseRowsAloneWereAppended) {
  const std::vector<StepOutput> expected = live(scenario_, 200).outputs;
  const std::vector<StepOutput> found =
      live(scenario_, 200, &Batch::expect_appended_prompt).outputs;
  ASSERT_EQ(found.size(), 16U);  // prompts have no such figure
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(found[i], expected[prompt + i]) << i;
    EXPECT_EQ(found[8 + i], expected[expected.size() - 8 + i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachPolicyInPieces,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

/// Attention of one query over all rows up to `position`, in double.
std::vector<float> naive(const Traffic& traffic, std::size_t layer, std::size_t position) {
  const KvShape& shape = traffic.shape();
  const auto query = traffic.query(layer, position);
  std::vector<float> output;
  const auto number = [&](const std::vector<std::byte>& row, std::size_t i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, row.data() + i * sizeof bits, sizeof bits);
    return static_cast<double>(f16_to_f32(bits));
  };
  for (std::size_t head = 0; head < shape.query_heads; ++head) {
    std::vector<double> sums(shape.head_dim);
    double total = 0;
    for (std::size_t other = 0; other <= position; ++other) {
      const auto row = traffic.row(layer, head / shape.group(), other);
      double dot = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        dot += static_cast<double>(query[head * shape.head_dim + i]) * number(row, i);
      }
      const double weight = std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim)));
      total += weight;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        sums[i] += weight * number(row, shape.head_dim + i);
      }
    }
    for (const double sum : sums) output.push_back(static_cast<float>(sum / total));
  }
  return output;
}

TEST(Pieces, OfRowsAloneAreRefusedWhereTokensSelect) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  batch.expect_prompt(0, prompt, prompt);
  ASSERT_TRUE(batch.sequence(0).await_indexes().has_value());
  const std::vector<std::byte> rows = batch.traffic(0).rows(0, {prompt, prompt + 1});
  const KvShape& shape = batch.traffic(0).shape();
  const StepMember members[] = {{&batch.sequence(0)}};
  const auto step = runtime->begin_step(members, batch.compute()).value();
  const Status appended =
      step->append(LayerId{0}, {.kv = {.keys = rows.data(),
                                       .values = rows.data() + shape.row_bytes() / 2,
                                       .token_stride = shape.token_bytes(),
                                       .head_stride = shape.row_bytes()}});
  ASSERT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().code, Errc::invalid_argument);
  EXPECT_EQ(step->append(LayerId{0}, {}).error().code, Errc::invalid_argument);
}

TEST(Pieces, AttendToAllRowsUpToTheirOwn) {
  for (const Placement placement : {Placement::offload, Placement::resident_first}) {
    Scenario scenario;
    scenario.runtime.placement = placement;
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    batch.expect_prompt(0, prompt, 90);
    for (const std::size_t position : {0U, 89U, 90U, 512U, 559U}) {
      const StepOutput& output = batch.outputs(0)[position];
      for (std::size_t layer = 0; layer < 2; ++layer) {
        const auto expected = naive(batch.traffic(0), layer, position);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(output[layer * expected.size() + i], expected[i], 1e-3F)
              << "position " << position << " layer " << layer;
        }
      }
    }
  }
}

TEST(Pieces, ComeBesideSequencesThatDecode) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 3);
  ASSERT_TRUE(batch.drive(1).prefill(200).has_value());
  ASSERT_TRUE(batch.drive(2).prefill(120).has_value());
  ASSERT_TRUE(batch.sequence(0).begin_prompt(prompt).has_value());
  for (std::size_t done = 0; done < prompt; done += 70) {
    batch.expect_step(std::array{BatchMember{1}, BatchMember{0, 70}, BatchMember{2}});
  }
  const auto alone = scenario.open();
  Batch by_itself(*alone, 1);
  by_itself.expect_prompt(0, prompt, prompt);
  EXPECT_EQ(batch.outputs(0), by_itself.outputs(0));
  EXPECT_EQ(batch.outputs(1), testing::outputs_of(scenario, 200, 8, 2));
  EXPECT_EQ(batch.outputs(2), testing::outputs_of(scenario, 120, 8, 3));
}

TEST(Pieces, TakeLittleMoreDeviceMemoryThanOne) {
  Scenario scenario;
  scenario.runtime.cache.policy = "none";
  const auto peak_of = [&](std::size_t tokens, std::size_t piece) {
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    batch.expect_prompt(0, tokens, piece);
    return runtime->block_pool_bytes();
  };
  // Long pieces against sinks and window, which only later ones have beside them.
  const std::size_t one = peak_of(400, 400);
  EXPECT_LE(peak_of(2000, 400), one + one / 4);
}

TEST(Pieces, ShareABudgetOfTheAnnouncedTotal) {
  Scenario scenario;
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.2};
  const auto whole = live(scenario, 1000);
  const auto pieces = live(scenario, 50);
  EXPECT_EQ(pieces.budget, whole.budget);
  EXPECT_EQ(pieces.outputs, whole.outputs);
  EXPECT_GE(pieces.budget, prompt / 5);
}

TEST(Pieces, ShareABudgetThatFollowsALengthNobodyAnnounced) {
  Scenario scenario;
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.2};
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  for (int i = 0; i < 10; ++i) batch.expect_step(std::array{BatchMember{0, 50}});
  EXPECT_GE(batch.sequence(0).budget_tokens(), 500U / 5);
  decode(batch, 5);
  batch.drive(0).expect_all_rows_right();
}

TEST(Pieces, GoOnInAFork) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.sequence(0).begin_prompt(prompt).has_value());
  batch.expect_step(std::array{BatchMember{0, 200}});
  const auto twin = batch.sequence(0).fork().value();
  batch.expect_step(std::array{BatchMember{0, prompt - 200}});
  // The twin's prompt is not whole: the budget stays, and nothing is indexed.
  EXPECT_EQ(twin->budget_tokens(), batch.sequence(0).budget_tokens());
  EXPECT_TRUE(twin->index_ready());
  ASSERT_TRUE(batch.sequence(0).await_indexes().has_value());
  EXPECT_EQ(twin->counters().builds, 0U);
  EXPECT_GT(batch.sequence(0).counters().builds, 0U);
  const auto compute = runtime->backend().make_queue({.name = "twin"}).value();
  const StepMember members[] = {{twin.get(), 1}};
  {
    const auto step = runtime->begin_step(members, *compute).value();
    EXPECT_TRUE(step->status(0).has_value());
  }
  EXPECT_EQ(twin->counters().builds, 0U);
}

/// Returns which layers' indexes were built when all work so far had ended.
std::vector<bool> built_layers(Sequence& sequence) {
  SequenceParts& parts = state_of(sequence).parts;
  EXPECT_TRUE(parts.work.lanes.offload().drain(std::chrono::seconds{60}).has_value());
  EXPECT_TRUE(parts.work.lanes.cluster().drain(std::chrono::seconds{60}).has_value());
  std::vector<bool> built;
  for (const auto& layer : parts.layers) {
    built.push_back(layer->index.build.end > layer->index.build.begin);
  }
  return built;
}

TEST(Pieces, OfWhichTheLastLetsEachLayerBeIndexedWhileOthersCompute) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  testing::Drive drive(*runtime, traffic);
  Sequence& sequence = drive.sequence();
  const auto rows = traffic.rows(0, {0, 400});
  const StepTensors tensors{.kv = traffic.tensors(rows, 400)};
  ASSERT_TRUE(sequence.begin_prompt(400).has_value());
  const auto step = drive.begin_step(400);
  ASSERT_TRUE(step->append(LayerId{0}, tensors).has_value());
  ASSERT_TRUE(drive.compute().drain(std::chrono::seconds{60}).has_value());
  EXPECT_EQ(built_layers(sequence), (std::vector<bool>{true, false}));
  ASSERT_TRUE(step->append(LayerId{1}, tensors).has_value());
  ASSERT_TRUE(testing::end_step(*step).has_value());
  EXPECT_EQ(built_layers(sequence), (std::vector<bool>{true, true}));
  EXPECT_TRUE(sequence.index_ready());
}

TEST(Pieces, OfAPromptThatDoesNotComeWholeAreIndexed) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.sequence(0).begin_prompt(1000).has_value());
  batch.expect_step(std::array{BatchMember{0, 300}});
  EXPECT_FALSE(batch.sequence(0).index_ready() && batch.sequence(0).counters().builds > 0);
  ASSERT_TRUE(batch.sequence(0).begin_prompt(0).has_value());
  ASSERT_TRUE(batch.sequence(0).await_indexes().has_value());
  EXPECT_TRUE(batch.sequence(0).index_ready());
  decode(batch, 10);
  const std::vector<StepOutput> steps(batch.outputs(0).end() - 10, batch.outputs(0).end());
  EXPECT_EQ(steps, testing::outputs_of(scenario, 300, 10));
}

}  // namespace
}  // namespace terrace
