// Estimates added to policies: attention over selected rows and estimates of the rest is nearer to
// full attention. All policies keep their promises with estimates, too: TERRACE_TEST_ESTIMATES.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "policies/policy_index.hpp"
#include "policies/selecting_policies.hpp"

namespace terrace {
namespace {

using policies::RetrievalOptions;
using testing::BlockStore;
using ::testing::HasSubstr;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = 32};
constexpr std::size_t tokens = 1200;
constexpr std::size_t sinks = 4;
constexpr std::size_t window = 1100;

std::unique_ptr<RetrievalPolicy> make(const std::string& name, std::size_t group_tokens,
                                      bool in_budget = false) {
  return policies::make_retrieval_policy(
             name, {.estimates = {.group_tokens = group_tokens, .in_budget = in_budget}})
      .value();
}

/// Rows that have likes near them, as those of texts have.
void fill_with_drift(BlockStore& rows) {
  Rng rng(testing::seed(), {95});
  std::vector<float> state(shape.kv_heads * 2 * shape.head_dim);
  rows.fill([&](std::size_t, std::size_t head, std::size_t i) {
    float& x = state[head * 2 * shape.head_dim + i];
    x = 0.9F * x + 0.5F * testing::normal(rng);
    return x + 0.3F * testing::normal(rng);
  });
}

/// Attention's output of one head over entries, each with a bias.
class Output {
 public:
  explicit Output(std::span<const float> query) : query_(query), sums_(shape.head_dim) {}

  void add(const std::byte* row, double bias) {
    double logit = bias;
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      logit += double{query_[i]} * double{load_f32(row, shape.dtype, i)} /
               std::sqrt(static_cast<double>(shape.head_dim));
    }
    const double weight = std::exp(logit);
    total_ += weight;
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      sums_[i] += weight * double{load_f32(row, shape.dtype, shape.head_dim + i)};
    }
  }
  [[nodiscard]] double distance(const Output& other) const {
    double square = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      square += std::pow(sums_[i] / total_ - other.sums_[i] / other.total_, 2);
    }
    return std::sqrt(square);
  }

 private:
  std::span<const float> query_;
  std::vector<double> sums_;
  double total_ = 0;
};

/// The error of attention's output over `count` selected rows and what stands for the rest, in the
/// mean over some queries.
double error_of(const RetrievalPolicy& policy, std::size_t count) {
  BlockStore rows(shape, 16, tokens);
  fill_with_drift(rows);
  PolicyIndex index(policy, rows, sinks);
  index.build(1000);
  index.extend(tokens);
  double error = 0;
  for (std::size_t number = 0; number < 8; ++number) {
    const std::vector<float> query = testing::normal_query(shape, 100 + number);
    const auto lists = index.select(query, window, count);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const auto own = std::span(query).subspan(head * shape.head_dim, shape.head_dim);
      Output exact(own);
      for (std::size_t p = sinks; p < window; ++p) exact.add(rows.row(head, p), 0);
      Output sparse(own);
      for (const std::uint32_t id : lists[head]) sparse.add(rows.row(head, id), 0);
      const std::size_t stride = policy.pseudo_capacity(index.indexed().size());
      for (std::size_t i = 0; stride > 0 && i < index.pseudo_counts[head]; ++i) {
        const std::size_t at = head * stride + i;
        sparse.add(index.pseudo_rows[at], double{index.pseudo_bias[at]});
      }
      error += sparse.distance(exact);
    }
  }
  return error / 16;
}

class Estimated : public ::testing::TestWithParam<std::string> {};

TEST_P(Estimated, BringsAttentionNearerToFull) {
  const double without = error_of(*make(GetParam(), 0), 60);
  const double coarse = error_of(*make(GetParam(), 64), 60);
  const double fine = error_of(*make(GetParam(), 16), 60);
  EXPECT_LT(coarse, 0.6 * without);
  EXPECT_LT(fine, coarse);
}

TEST_P(Estimated, IsFullAttentionWhereEveryGroupIsOneToken) {
  EXPECT_LT(error_of(*make(GetParam(), 1), 60), 0.1 * error_of(*make(GetParam(), 0), 60));
}

TEST_P(Estimated, TakesThePlaceOfAFifthOfTheRowsAtMost) {
  BlockStore rows(shape, 16, tokens);
  fill_with_drift(rows);
  const auto policy = make(GetParam(), 16, /*in_budget=*/true);
  PolicyIndex index(*policy, rows, sinks);
  index.build(tokens);
  const auto lists = index.select(testing::normal_query(shape, 7), window, 60);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    EXPECT_EQ(lists[head].size(), 48U);
    EXPECT_EQ(index.pseudo_counts[head], 12U);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Estimated,
                         ::testing::Values("pqcache", "qpq", "quest", "infllm", "sparq"),
                         [](const auto& one) { return one.param; });

TEST(EstimatedPolicy, RefusesSettingsOutOfRange) {
  const auto refusal = [](const std::string& name, const RetrievalOptions& options) {
    const auto made = policies::make_retrieval_policy(name, options);
    return made ? std::string() : std::string(made.error().message());
  };
  EXPECT_THAT(refusal("pqcache", {.estimates = {.group_tokens = 7}}),
              HasSubstr("retrieval.estimate_tokens 7: use a divisor of 64"));
  EXPECT_THAT(refusal("clusterkv", {.estimates = {.group_tokens = 16},
                                    .clusterkv = {.lists = ListScope::query_head}}),
              HasSubstr("clusterkv.lists"));
  EXPECT_EQ(refusal("full", {.estimates = {.group_tokens = 7}}), "");
}

}  // namespace
}  // namespace terrace
