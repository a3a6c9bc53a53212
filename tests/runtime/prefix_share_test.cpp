// Runtimes that have shares of one model: ranks of tensor parallelism, stages of a pipeline.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"
#include "terrace/runtime/config.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;
using testing::prefixes::found_by;
using testing::prefixes::keep_prefixes;
using testing::prefixes::kept;
using testing::prefixes::prompt;
using testing::prefixes::publish;
using testing::prefixes::Shelf;
using testing::prefixes::tokens_of;

/// The heads, or the layers, that a model is divided by.
struct Division {
  ModelShare PrefixOptions::* share;
  std::size_t KvShape::* count;
  const char* first_key;
};

class SharesOfAModel : public ::testing::TestWithParam<Division> {
 protected:
  SharesOfAModel() { keep_prefixes(scenario_, shelf_); }

  [[nodiscard]] std::size_t count() const { return scenario_.runtime.shape.*GetParam().count; }

  /// The runtime of a model that has twice as many heads or layers, all from `first` on.
  [[nodiscard]] Scenario rank_from(std::size_t first) const {
    Scenario rank = scenario_;
    rank.runtime.prefixes.*GetParam().share = {.whole = 2 * count(), .first = first};
    return rank;
  }

  Scenario scenario_;
  Shelf shelf_;
  std::vector<TokenId> tokens_ = tokens_of(prompt);
};

TEST_P(SharesOfAModel, AreNotFoundByOthers) {
  const Scenario first = rank_from(0);
  const Scenario second = rank_from(count());
  publish(first, {.tokens = tokens_});
  EXPECT_EQ(found_by(first, {.tokens = tokens_}), kept);
  EXPECT_EQ(found_by(second, {.tokens = tokens_}), 0U);
  EXPECT_EQ(found_by(rank_from(1), {.tokens = tokens_}), 0U) << "a share that overlaps";
  EXPECT_EQ(found_by(scenario_, {.tokens = tokens_}), 0U) << "a model of one share's shape";
}

TEST_P(SharesOfAModel, HaveTheirOwnRowsInOneStore) {
  for (const std::size_t first : {std::size_t{0}, count()}) {
    EXPECT_EQ(publish(rank_from(first), {.tokens = tokens_}, 1 + first).tokens, kept);
  }
  for (const std::size_t first : {std::size_t{0}, count()}) {
    const auto runtime = rank_from(first).open();
    const Traffic traffic(scenario_.runtime.shape, 1 + first);
    Drive drive(runtime->open_sequence({.tokens = tokens_}).value(), *runtime, traffic);
    ASSERT_EQ(drive.sequence().length(), kept);
    ASSERT_TRUE(drive.steps(3).has_value());
    drive.expect_all_rows_right();
  }
}

TEST_P(SharesOfAModel, AreAllOfItByDefault) {
  publish(scenario_, {.tokens = tokens_});
  Scenario whole = scenario_;
  whole.runtime.prefixes.*GetParam().share = {.whole = count()};
  EXPECT_EQ(found_by(whole, {.tokens = tokens_}), kept);
}

TEST_P(SharesOfAModel, AreRefusedBeyondIt) {
  for (const ModelShare share : {ModelShare{.first = 1}, ModelShare{.whole = count() - 1},
                                 ModelShare{.whole = count() + 1, .first = 2},
                                 ModelShare{.whole = 2 * count(), .first = SIZE_MAX}}) {
    Scenario beyond = scenario_;
    beyond.runtime.prefixes.*GetParam().share = share;
    const auto opened = Runtime::open(beyond.runtime, testing::make_scenario_backend({}, nullptr));
    ASSERT_FALSE(opened.has_value()) << share.first << " of " << share.whole;
    EXPECT_EQ(opened.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(opened.error().message()), ::testing::HasSubstr(GetParam().first_key));
    beyond.runtime.prefixes.model = "";  // nothing is kept or found
    EXPECT_TRUE(beyond.runtime.validate().has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Divisions, SharesOfAModel,
    ::testing::Values(Division{&PrefixOptions::kv_heads, &KvShape::kv_heads, "tier.first_kv_head"},
                      Division{&PrefixOptions::layers, &KvShape::layers, "tier.first_layer"}));

TEST(ShareOfAModel, IsSetByKeys) {
  Config config;
  ASSERT_TRUE(apply_config_text(config,
                                "tier: {model: weights, model_kv_heads: 8, first_kv_head: 4, "
                                "model_layers: 64, first_layer: 32}\n",
                                "a.yaml"));
  const KvShape shape{.layers = 32, .query_heads = 16, .kv_heads = 4, .head_dim = 64};
  const auto options = RuntimeOptions::from(config, shape);
  ASSERT_TRUE(options.has_value()) << options.error().message();
  EXPECT_EQ(options->prefixes.kv_heads.whole, 8U);
  EXPECT_EQ(options->prefixes.kv_heads.first, 4U);
  EXPECT_EQ(options->prefixes.layers.whole, 64U);
  EXPECT_EQ(options->prefixes.layers.first, 32U);
}

}  // namespace
}  // namespace terrace
