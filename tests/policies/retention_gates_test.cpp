// Gates: ratings against loops in double, and what they refuse.
#include "terrace/policies/retention_gates.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "engine/random_floats.hpp"
#include "engine/thread_parallel.hpp"
#include "made_up_gates.hpp"

namespace terrace::policies {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr KvShape shape{.layers = 3, .query_heads = 6, .kv_heads = 3, .head_dim = 10};
const std::vector<std::size_t> widths{24, 17, 9, 1};

/// A network in double, spelt out.
double rating_in_words(const std::vector<GateStage>& stages, std::size_t network,
                       std::span<const float> key) {
  std::vector<double> values(key.begin(), key.end());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const GateStage& stage = stages[s];
    std::vector<double> sums;
    for (std::size_t o = 0; o < stage.outputs; ++o) {
      double sum = stage.bias[network * stage.outputs + o];
      for (std::size_t i = 0; i < stage.inputs; ++i) {
        sum += values[i] * stage.weight[(network * stage.inputs + i) * stage.outputs + o];
      }
      sums.push_back(s + 1 < stages.size() ? std::max(sum, 0.0) : sum);
    }
    values = sums;
  }
  return values.front();
}

std::vector<float> rate(const Gates& gates, std::uint32_t layer, const std::vector<float>& keys,
                        Parallel& threads) {
  std::vector<float> ratings(keys.size() / shape.head_dim);
  gates.rate(LayerId{layer}, keys, ratings, threads);
  return ratings;
}

TEST(Gates, AgreeWithALoopInDoubleInTheOrderOfLayersAndHeads) {
  const auto stages = made_up_stages(shape, widths);
  const Gates gates = Gates::create(shape.layers, shape.kv_heads, stages).value();
  const std::size_t tokens = 70;  // two tiles and a tail
  const auto keys = random_floats(tokens * shape.kv_heads * shape.head_dim, 5, 3);
  Serial serial;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto ratings = rate(gates, layer, keys, serial);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      for (std::size_t token = 0; token < tokens; ++token) {
        const auto key = std::span(keys).subspan((token * shape.kv_heads + head) * shape.head_dim,
                                                 shape.head_dim);
        ASSERT_NEAR(ratings[head * tokens + token],
                    rating_in_words(stages, layer * shape.kv_heads + head, key), 1e-5)
            << layer << ' ' << head << ' ' << token;
      }
    }
  }
}

TEST(Gates, RateATokenAlikeInAnyCompanyAndOnAnyThreads) {
  const auto gates = made_up_gates(shape, widths);
  const std::size_t tokens = 70;
  const std::size_t numbers = shape.kv_heads * shape.head_dim;
  const auto keys = random_floats(tokens * numbers, 6);
  Serial serial;
  const auto together = rate(*gates, 1, keys, serial);
  ThreadParallel threads(3);
  EXPECT_EQ(rate(*gates, 1, keys, threads), together);
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::vector<float> key(keys.begin() + static_cast<std::ptrdiff_t>(token * numbers),
                                 keys.begin() + static_cast<std::ptrdiff_t>((token + 1) * numbers));
    const auto alone = rate(*gates, 1, key, serial);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      ASSERT_EQ(alone[head], together[head * tokens + token]);
    }
  }
  EXPECT_TRUE(rate(*gates, 1, {}, serial).empty());
}

TEST(Gates, RefuseStagesThatDoNotFit) {
  const auto message = [](std::vector<GateStage> stages) {
    const auto gates = Gates::create(shape.layers, shape.kv_heads, std::move(stages));
    return gates ? std::string() : std::string(gates.error().message());
  };
  EXPECT_EQ(message(made_up_stages(shape, widths)), "");
  EXPECT_THAT(message({}), HasSubstr("one rating"));
  EXPECT_THAT(message(made_up_stages(shape, {4, 2})), HasSubstr("one rating"));
  EXPECT_THAT(message(made_up_stages(shape, {Gates::width_max + 1, 1})),
              AllOf(HasSubstr("stage 0"), HasSubstr("513 outputs")));
  auto stages = made_up_stages(shape, widths);
  stages[2].inputs = 16;
  EXPECT_THAT(message(stages), AllOf(HasSubstr("stage 2"), HasSubstr("17 outputs")));
  stages = made_up_stages(shape, widths);
  stages[1].bias.pop_back();
  EXPECT_THAT(message(stages), AllOf(HasSubstr("stage 1"), HasSubstr("152 numbers")));
  stages = made_up_stages(shape, widths);
  stages[3].weight[7 * 9 + 2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message(stages), HasSubstr("layer 2, KV head 1 has the number nan in stage 3"));
  EXPECT_EQ(Gates::create(0, 3, made_up_stages(shape, widths)).error().code,
            Errc::invalid_argument);
}

TEST(Gates, KnowTheModelsTheyFit) {
  const auto gates = made_up_gates(shape, widths);
  EXPECT_TRUE(gates->check_shape(shape).has_value());
  for (const KvShape& other :
       {KvShape{.layers = 4, .query_heads = 6, .kv_heads = 3, .head_dim = 10},
        KvShape{.layers = 3, .query_heads = 6, .kv_heads = 6, .head_dim = 10},
        KvShape{.layers = 3, .query_heads = 6, .kv_heads = 3, .head_dim = 12}}) {
    const Status status = gates->check_shape(other);
    ASSERT_FALSE(status.has_value());
    EXPECT_THAT(std::string(status.error().message()), HasSubstr("3 layers of 3 KV heads of 10"));
  }
}

}  // namespace
}  // namespace terrace::policies
