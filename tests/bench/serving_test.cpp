// The made-up engine: its traffic, and that no wrong output stays unnoticed.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "serving/attention_check.hpp"
#include "serving/questions.hpp"
#include "terrace/policies/retrieval.hpp"
#include "wrong_backend.hpp"

namespace terrace::bench {
namespace {

using ::testing::HasSubstr;

constexpr KvShape shape{.layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 32};
constexpr std::size_t floats = shape.query_heads * shape.head_dim;

TEST(Traffic, IsTheSameInPiecesAndAlone) {
  const RowPool pool(shape, 1);
  const Traffic traffic(pool, 7);
  std::vector<std::byte> whole(40 * shape.token_bytes());
  std::vector<std::byte> pieces(whole.size());
  traffic.fill_rows(1, {100, 140}, whole.data());
  traffic.fill_rows(1, {100, 113}, pieces.data());
  traffic.fill_rows(1, {113, 140}, pieces.data() + 13 * shape.token_bytes());
  EXPECT_EQ(whole, pieces);
  const auto row = pool.row(traffic.row(1, 1, 139));
  EXPECT_TRUE(std::ranges::equal(row, std::span(whole).last(shape.row_bytes())));
  traffic.fill_rows(0, {100, 140}, pieces.data());
  EXPECT_NE(whole, pieces) << "another layer";
  Traffic(pool, 8).fill_rows(1, {100, 140}, pieces.data());
  EXPECT_NE(whole, pieces) << "another sequence";
}

/// The clusters that the tokens of a range belong to.
std::set<std::size_t> clusters_of(const Traffic& traffic, TokenRange tokens) {
  std::set<std::size_t> clusters;
  for (std::size_t position = tokens.begin; position < tokens.end; ++position) {
    clusters.insert(traffic.row(0, 0, position) / RowPool::rows_per_cluster);
  }
  return clusters;
}

TEST(Traffic, DriftsFromClustersToOthers) {
  const RowPool pool(shape, 1);
  const Traffic traffic(pool, 7);
  const auto first = clusters_of(traffic, {0, 256});
  EXPECT_GT(first.size(), 8U);
  EXPECT_LT(first.size(), 32U);
  std::vector<std::size_t> both;
  std::ranges::set_intersection(first, clusters_of(traffic, {4096, 4352}),
                                std::back_inserter(both));
  EXPECT_TRUE(both.empty());
}

TEST(Traffic, AsksForEarlierTokens) {
  const RowPool pool(shape, 1);
  const Traffic traffic(pool, 7);
  std::vector<float> query(floats);
  for (const std::size_t position : {0U, 9U, 1000U}) {
    traffic.fill_query(0, position, query);
    for (std::size_t head = 0; head < shape.query_heads; ++head) {
      float largest = -std::numeric_limits<float>::infinity();
      for (std::size_t i = 0; i <= position; ++i) {
        const auto key = pool.floats(traffic.row(0, head / shape.group(), i));
        float logit = 0;
        for (std::size_t j = 0; j < shape.head_dim; ++j) {
          logit += query[head * shape.head_dim + j] * key[j];
        }
        largest = std::max(largest, logit / std::sqrt(static_cast<float>(shape.head_dim)));
      }
      EXPECT_GT(largest, 2) << "position " << position << ", head " << head;
    }
  }
}

/// Attention as its definition says, of all heads over the same positions.
std::vector<float> attend(const Traffic& traffic, std::size_t position,
                          const std::vector<std::size_t>& positions) {
  std::vector<float> query(floats);
  traffic.fill_query(1, position, query);
  std::vector<float> output(floats);
  for (std::size_t head = 0; head < shape.query_heads; ++head) {
    std::vector<double> sums(shape.head_dim);
    double weights = 0;
    for (const std::size_t one : positions) {
      const auto row = traffic.pool().floats(traffic.row(1, head / shape.group(), one));
      double logit = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        logit += query[head * shape.head_dim + i] * row[i];
      }
      const double weight = std::exp(logit / std::sqrt(double{shape.head_dim}));
      weights += weight;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        sums[i] += weight * row[shape.head_dim + i];
      }
    }
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      output[head * shape.head_dim + i] = static_cast<float>(sums[i] / weights);
    }
  }
  return output;
}

class AttentionCheck : public ::testing::Test {
 protected:
  [[nodiscard]] Status check(const std::vector<float>& output) const {
    return check_attended_rows({.traffic = traffic_, .layer = 1, .position = 99, .output = output},
                               {.sinks = {0, 2},
                                .window = {98, 100},
                                .ids = ids_,
                                .counts = counts_,
                                .stride = ids_.size() / shape.kv_heads});
  }

  [[nodiscard]] Status near_full(const std::vector<float>& output) const {
    return check_near_full_attention(
        {.traffic = traffic_, .layer = 1, .position = 99, .output = output});
  }

  RowPool pool_{shape, 3};
  Traffic traffic_{pool_, 4};
  std::vector<std::uint32_t> ids_{40, 30, 50, 40, 30, 50};
  std::vector<std::uint32_t> counts_{3, 3};
  std::vector<float> right_ = attend(traffic_, 99, {0, 1, 30, 40, 50, 98, 99});
};

TEST_F(AttentionCheck, TakesAttentionOverTheRowsNamed) {
  const Status checked = check(right_);
  EXPECT_TRUE(checked) << checked.error().message();
}

TEST_F(AttentionCheck, RefusesANumberThatIsOff) {
  for (const float wrong :
       {right_.back() + 0.002F, right_.back() - 0.002F, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> output = right_;
    output.back() = wrong;
    const Status checked = check(output);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, Errc::corrupt);
    EXPECT_THAT(std::string(checked.error().message()), HasSubstr("query head 3: output 31 is"));
  }
}

TEST_F(AttentionCheck, RefusesOtherRowsThanThoseNamed) {
  EXPECT_FALSE(check(attend(traffic_, 99, {0, 1, 30, 40, 98, 99}))) << "one less";
  EXPECT_FALSE(check(attend(traffic_, 99, {0, 1, 30, 40, 50, 60, 98, 99}))) << "one more";
  counts_ = {3, 2};
  EXPECT_FALSE(check(right_)) << "one of one KV head";
}

TEST_F(AttentionCheck, RefusesARowThatIsNamedTwice) {
  ids_[1] = 1;  // a sink
  ids_[4] = 1;
  const Status checked = check(attend(traffic_, 99, {0, 1, 1, 40, 50, 98, 99}));
  ASSERT_FALSE(checked);
  EXPECT_THAT(std::string(checked.error().message()), HasSubstr("twice to token 1"));
}

TEST_F(AttentionCheck, HoldsEstimatesAgainstFullAttention) {
  std::vector<std::size_t> all(100);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<float> full = attend(traffic_, 99, all);
  EXPECT_TRUE(near_full(full));
  for (std::size_t i = 0; i < shape.head_dim; ++i) full[i] = -full[i];  // one head of four
  const Status checked = near_full(full);
  ASSERT_FALSE(checked);
  EXPECT_THAT(std::string(checked.error().message()), HasSubstr("query head 0: cosine"));
  full[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(near_full(full));
}

ServingOptions options_of(std::string_view policy) {
  ServingOptions options;
  options.runtime.shape = shape;
  options.runtime.policy = policy;
  options.runtime.budget = {.kind = TokenBudget::Kind::tokens, .value = 96};
  options.runtime.sink_tokens = 4;
  options.backend = [] { return offload::HostBackend::create({}); };
  return options;
}

constexpr ServingSizes small{.sequences = 3, .context = 400, .steps = 8, .prefill_chunk = 150};

TEST(Serving, GivesRightOutputsWithEachPolicy) {
  for (const auto& entry : policies::retrieval_policies()) {
    SCOPED_TRACE(entry.name);
    const auto figures = serve(options_of(entry.name), small);
    ASSERT_TRUE(figures) << figures.error().message();
    EXPECT_EQ(figures->step.size(), small.steps);
    EXPECT_GT(figures->arrivals, 0U);
    EXPECT_GT(figures->device_bytes, 0U);
    EXPECT_GT(figures->threads, 1U);
    const auto prompts = give_prompts(options_of(entry.name), small);
    EXPECT_TRUE(prompts) << prompts.error().message();
    const auto beside = step_beside_a_piece(options_of(entry.name), small);
    ASSERT_TRUE(beside) << beside.error().message();
    EXPECT_EQ(beside->beside.size() % 3, 0U) << "pieces of 150, 150 and 100 tokens";
    EXPECT_EQ(beside->beside.size(), beside->step.size());
    EXPECT_EQ(beside->beside.size(), beside->piece.size());
  }
}

ServingSizes given_prompts() {
  ServingSizes sizes = small;
  sizes.given_prompts = true;
  return sizes;
}

TEST(Serving, StoresPromptsThatAreGivenWithoutAttention) {
  for (const char* const policy : {"full", "pqcache", "signs"}) {
    SCOPED_TRACE(policy);
    // Attention of pieces would show here: its outputs are wrong.
    ServingOptions options = options_of(policy);
    options.backend = [] { return std::make_unique<WrongBackend>(WrongOp::tile_attention); };
    const auto figures = serve(options, given_prompts());
    ASSERT_TRUE(figures) << figures.error().message();
    EXPECT_GT(figures->arrivals, 0U);
    const auto prompts = give_prompts(options, given_prompts());
    ASSERT_TRUE(prompts) << prompts.error().message();
    const auto beside = step_beside_a_piece(options, given_prompts());
    ASSERT_FALSE(beside);
    EXPECT_EQ(beside.error().code, Errc::unsupported);
  }
}

TEST(Serving, CountsProcessorTimeOfTheCallingThread) {
  const auto engine = ServingEngine::create(options_of("pqcache"));
  ASSERT_TRUE(engine) << engine.error().message();
  const auto served = (*engine)->store({.tokens = 300, .piece_tokens = 150, .seed = 1});
  ASSERT_TRUE(served) << served.error().message();
  const auto times = (*engine)->step((*served)->next());
  ASSERT_TRUE(times) << times.error().message();
  for (const Duration part : {times->cpu.begin, times->cpu.attend, times->cpu.end}) {
    EXPECT_GT(part, Duration{});
  }
  EXPECT_LE(times->cpu.begin + times->cpu.attend + times->cpu.end, times->wall);
}

TEST(Serving, TakesPiecesBesideTokens) {
  const auto engine = ServingEngine::create(options_of("pqcache"));
  ASSERT_TRUE(engine) << engine.error().message();
  const auto decoding = (*engine)->store({.tokens = 300, .piece_tokens = 150, .seed = 1});
  const auto arriving = (*engine)->announce({.tokens = 400, .piece_tokens = 150, .seed = 2});
  ASSERT_TRUE(decoding && arriving);
  std::vector<std::size_t> pieces;
  for (int i = 0; i < 5; ++i) {
    const ServedMember members[] = {(*arriving)->next(), (*decoding)->next()};
    pieces.push_back(members[0].tokens);
    EXPECT_EQ(members[1].tokens, 1U);
    ASSERT_TRUE((*engine)->step(members));
    for (const std::size_t place : {0U, 1U}) {
      const Status checked = (*engine)->check_outputs(place);
      EXPECT_TRUE(checked) << checked.error().message();
    }
  }
  EXPECT_THAT(pieces, ::testing::ElementsAre(150, 150, 100, 1, 1));
  EXPECT_EQ((*arriving)->sequence->length(), 402U);
  EXPECT_EQ((*decoding)->sequence->length(), 305U);
}

ServingOptions wrong_options(std::string_view policy, WrongOp wrong) {
  ServingOptions options = options_of(policy);
  options.backend = [wrong] { return std::make_unique<WrongBackend>(wrong); };
  return options;
}

/// A run that ends because of what the last piece of a prompt of that many tokens gave.
template <typename Figures>
void expect_wrong_prompt(const Result<Figures>& figures, std::size_t prompt_tokens) {
  ASSERT_FALSE(figures);
  EXPECT_EQ(figures.error().code, Errc::corrupt);
  EXPECT_THAT(std::string(figures.error().message()),
              HasSubstr(fmt::format("token {}, layer 0, query head", prompt_tokens - 1)));
}

TEST(Serving, EndsWithAWrongOutput) {
  for (const char* const policy : {"full", "pqcache", "wave"}) {
    SCOPED_TRACE(policy);
    const ServingOptions options = wrong_options(policy, WrongOp::decode_attention);
    const auto figures = serve(options, small);
    ASSERT_FALSE(figures);
    EXPECT_EQ(figures.error().code, Errc::corrupt) << figures.error().message();
    EXPECT_FALSE(give_prompts(options, small));
    EXPECT_FALSE(step_beside_a_piece(options, small));
    EXPECT_FALSE(step_while_indexing(options, small));
  }
}

constexpr std::size_t first_arrival = 333;  ///< tokens of its prompt

TEST(Serving, EndsWithAPieceThatAttendsWrongly) {
  for (const char* const policy : {"full", "pqcache", "wave"}) {
    SCOPED_TRACE(policy);
    const ServingOptions options = wrong_options(policy, WrongOp::tile_attention);
    expect_wrong_prompt(serve(options, small), first_arrival);
    expect_wrong_prompt(give_prompts(options, small), small.context);
    expect_wrong_prompt(step_beside_a_piece(options, small), small.context);
  }
}

TEST(Serving, EndsWithAPieceWhoseRowsAreWrongBesideOthers) {
  for (const char* const policy : {"full", "pqcache", "wave"}) {
    SCOPED_TRACE(policy);
    const ServingOptions options = wrong_options(policy, WrongOp::store_pieces);
    expect_wrong_prompt(serve(options, small), first_arrival);
    expect_wrong_prompt(step_beside_a_piece(options, small), small.context);
    EXPECT_TRUE(give_prompts(options, small)) << "nobody is beside these";
  }
}

ServingSettings settings_of(ServingOptions options) {
  return {.policies = {{.name = "pqcache", .options = std::move(options)}},
          .sequences = {64, 1, 8},
          .sizes = small,
          .quick = true};
}

TEST(ServingRows, AreNamedByTheSizesMeasured) {
  const auto questions = serving_questions(settings_of(options_of("pqcache")));
  std::vector<std::string> names;
  for (const Question& question : questions) names.push_back(question.name);
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre(
                  "serving_prompt_n400_pqcache", "serving_step_b1_n400_pqcache",
                  "serving_outside_kernels_b1_n400_pqcache", "serving_device_bytes_b1_n400_pqcache",
                  "serving_threads_b1", "serving_step_b3_n400_pqcache",
                  "serving_outside_kernels_b3_n400_pqcache", "serving_device_bytes_b3_n400_pqcache",
                  "serving_threads_b3", "serving_step_beside_a_piece_pqcache",
                  "serving_step_while_indexing_pqcache"));
  for (const char* const name :
       {"serving_step_b3_n400_pqcache", "serving_step_beside_a_piece_pqcache"}) {
    const auto at = std::ranges::find(names, name) - names.begin();
    EXPECT_EQ(questions[static_cast<std::size_t>(at)].parameters["sequences"], 3) << name;
  }
}

TEST(ServingRows, HaveNoFigureButAReasonWhereAnOutputIsWrong) {
  const ServingOptions wrong = wrong_options("pqcache", WrongOp::decode_attention);
  for (const Question& question : serving_questions(settings_of(wrong))) {
    const Row row = ask(question, {.quick = true});
    EXPECT_FALSE(row.value.has_value()) << question.name;
    EXPECT_TRUE(row.failed);
    EXPECT_THAT(row.reason, HasSubstr("query head"));
  }
}

}  // namespace
}  // namespace terrace::bench
