// The headline's runs: what their figures are made of, and that no wrong output stays unnoticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serving/headline_rows.hpp"
#include "wrong_backend.hpp"

namespace terrace::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ServingOptions headline_options(std::string_view policy) {
  ServingOptions options;
  options.runtime.shape = {.layers = 3, .query_heads = 4, .kv_heads = 2, .head_dim = 32};
  options.runtime.policy = policy;
  options.runtime.budget = {.kind = TokenBudget::Kind::tokens, .value = 64};
  options.runtime.sink_tokens = 4;
  options.runtime.until_ready = UntilReady::wait;
  options.backend = [] { return offload::HostBackend::create({}); };
  return options;
}

const HeadlineSizes sizes{.context = 300, .batches = {1, 3}, .steps = 5, .prefill_chunk = 150};

void say_nothing(const std::string& /*words*/) {}

TEST(HeadlineRun, CountsWhatStepsMoveOnceTheWindowHasPassedThePrompt) {
  const auto figures = time_headline_steps(headline_options("signs"), sizes, say_nothing);
  ASSERT_TRUE(figures) << figures.error().message();
  EXPECT_EQ(figures->admitted, 3U);
  EXPECT_GE(figures->steps_until_window_passed, 28U);  // half of the budget but sinks
  ASSERT_EQ(figures->points.size(), 2U);
  for (const HeadlinePoint& point : figures->points) {
    EXPECT_EQ(point.step.size(), sizes.steps);
    const std::size_t rows = point.sequences * sizes.steps * point.layers;
    EXPECT_EQ(point.bytes.offload, rows * headline_options("signs").runtime.shape.token_bytes());
    EXPECT_GT(point.bytes.index, 0U);
    EXPECT_EQ(point.bytes.streamed, 0U);
    EXPECT_GT(point.cache.rows_missed, 0U);
  }
}

TEST(HeadlineRun, StreamsAllRowsButSinksAndWindow) {
  HeadlineSizes streamed = sizes;
  streamed.streamed = true;
  const auto figures = time_headline_steps(headline_options("streaming"), streamed, say_nothing);
  ASSERT_TRUE(figures) << figures.error().message();
  for (const HeadlinePoint& point : figures->points) {
    const std::size_t tokens = point.sequences * sizes.steps * point.layers;
    const std::size_t row = headline_options("streaming").runtime.shape.token_bytes();
    EXPECT_GT(point.bytes.streamed, tokens * (sizes.context - 64) * row / 2);
    EXPECT_LE(point.bytes.streamed, tokens * (sizes.context + 20) * row);
  }
}

TEST(HeadlineRun, EndsWithAWrongOutput) {
  for (const auto& [policy, op, streams] : {std::tuple{"full", WrongOp::decode_attention, false},
                                            {"signs", WrongOp::decode_attention, false},
                                            {"streaming", WrongOp::tile_attention, true}}) {
    SCOPED_TRACE(policy);
    ServingOptions options = headline_options(policy);
    options.backend = [op = op] { return std::make_unique<WrongBackend>(op); };
    HeadlineSizes own = sizes;
    own.streamed = streams;
    const auto figures = time_headline_steps(options, own, say_nothing);
    ASSERT_FALSE(figures);
    EXPECT_EQ(figures.error().code, Errc::corrupt) << figures.error().message();
  }
}

TEST(HeadlineRun, TakesFirstTokensWithAndWithoutAnIndex) {
  const auto figures = time_first_tokens(headline_options("signs"), sizes, say_nothing);
  ASSERT_TRUE(figures) << figures.error().message();
  ASSERT_EQ(figures->indexed.size(), figures->exact.size());
  for (std::size_t i = 0; i < figures->indexed.size(); ++i) {
    EXPECT_GT(figures->prompt[i], 0);
    EXPECT_GE(figures->indexed[i], figures->prompt[i] + figures->index_wait[i]);
  }
}

HeadlinePolicy policy_that_fits(std::size_t fits, bool keeps_everything) {
  return {.policy = {.name = "one", .options = headline_options("full")},
          .keeps_everything = keeps_everything,
          .fits = fits};
}

TEST(Headline, MeasuresAsManySequencesAsFit) {
  const HeadlineContext context{.tokens = 300, .policies = {}, .batches = {1, 16, 64}};
  EXPECT_THAT(headline_batches(context, policy_that_fits(14, true)), ElementsAre(1, 14, 16, 64));
  EXPECT_THAT(headline_batches(context, policy_that_fits(16, true)), ElementsAre(1, 16, 64));
  EXPECT_THAT(headline_batches(context, policy_that_fits(500, true)), ElementsAre(1, 16, 64));
  EXPECT_THAT(headline_batches(context, policy_that_fits(0, true)), ElementsAre(1, 16, 64));
}

/// Steps of `sequences`: 7 ms, and 2 ms for each sequence and layer.
HeadlineCost cost_of(std::size_t sequences, bool streamed = false) {
  const auto point = [&](std::size_t layers) {
    const double step = 7e-3 + 2e-3 * static_cast<double>(sequences * layers);
    return HeadlinePoint{.sequences = sequences,
                         .layers = layers,
                         .step = {1.0, step, 0.0},
                         .cpu = {},
                         .bytes = {},
                         .cache = {}};
  };
  return {.few = point(1), .many = point(4), .streamed = streamed};
}

TEST(Headline, TakesFixedAndMarginalCostApart) {
  EXPECT_NEAR(cost_of(3).marginal(), 6e-3, 1e-9);
  EXPECT_NEAR(cost_of(3).fixed(), 7e-3, 1e-9);
  EXPECT_NEAR(cost_of(3).model_step(32), 32 * 6e-3 + 7e-3, 1e-9);
}

TEST(Headline, CountsTokensOfAsManySequencesAsFit) {
  const HeadlineSettings settings{.model_layers = 32};
  HeadlineCosts costs;
  costs.points = {cost_of(1), cost_of(4), cost_of(16, true)};
  const auto tokens = [&](std::size_t fits, bool keeps_everything = true) {
    Row row;
    const Status put =
        put_tokens_per_second(row, settings, policy_that_fits(fits, keeps_everything), costs);
    if (!put) row.reason = put.error().message();
    return row;
  };
  EXPECT_NEAR(*tokens(4).value, 4 / (32 * 8e-3 + 7e-3), 1e-6);
  EXPECT_EQ(tokens(4).parameters["rows"], "in place");
  // Eight take twice as long as the four that were measured.
  EXPECT_NEAR(*tokens(8).value, *tokens(4).value, 1e-6);
  EXPECT_EQ(tokens(8).parameters["batch"], 4);
  EXPECT_NEAR(*tokens(0).value, 16 / (32 * 32e-3 + 7e-3), 1e-6);
  EXPECT_EQ(tokens(0).parameters["rows"], "streamed");
  EXPECT_THAT(tokens(0, false).reason, HasSubstr("not one sequence fits"));
}

TEST(Headline, HasNoTokensWhereALayerSeemsToCostNothing) {
  HeadlineCosts costs;
  costs.points = {cost_of(1)};
  costs.points[0].many.step = {0.0};
  Row row;
  EXPECT_FALSE(put_tokens_per_second(row, {.model_layers = 32}, policy_that_fits(1, true), costs));
  EXPECT_FALSE(row.value.has_value());
}

}  // namespace
}  // namespace terrace::bench
