// A policy that the embedder brings: what it gives is used, and what it needs is insisted on.
#include "runtime/own_policy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/naive_mass.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

/// Selects the first rows there are, every `stride`-th of them, each with a bias.
class FirstRows final : public testing::OwnPolicy {
 public:
  using OwnPolicy::OwnPolicy;

  std::size_t stride = 1;
  float bias = 0;  ///< of even positions
  float odd_bias = 0;

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& /*ops*/) const override {
    return queue.call(Phase::select, [this, request = batch.front()]() -> Result<std::size_t> {
      const Selection& out = request.out;
      for (std::size_t head = 0; head < request.shape.kv_heads; ++head) {
        std::uint32_t count = 0;
        for (std::size_t p = request.candidates.begin;
             p < request.candidates.end && count * stride < request.count.mean; p += stride) {
          const std::size_t at = head * out.capacity + count++;
          out.ids[at] = static_cast<std::uint32_t>(p);
          if (out.logit_bias != nullptr) out.logit_bias[at] = p % 2 == 0 ? bias : odd_bias;
        }
        out.id_count[head] = count;
      }
      return 0;
    });
  }
};

std::vector<StepOutput> outputs_with(std::shared_ptr<const FirstRows> policy) {
  Scenario scenario;
  scenario.runtime.own_policy = std::move(policy);
  return testing::outputs_of(scenario, 100, 5);
}

TEST(OwnPolicy, BiasOfMinusInfinityLeavesRowsOut) {
  auto every_second = std::make_shared<FirstRows>(RetrievalTraits{.name = "every_second"});
  every_second->stride = 2;
  const auto expected = outputs_with(every_second);
  auto biased =
      std::make_shared<FirstRows>(RetrievalTraits{.name = "biased", .gives_logit_bias = true});
  const auto with_all = outputs_with(biased);
  biased->odd_bias = -std::numeric_limits<float>::infinity();
  const auto outputs = outputs_with(biased);
  ASSERT_EQ(outputs.size(), expected.size());
  double off = 0;
  for (std::size_t step = 0; step < outputs.size(); ++step) {
    for (std::size_t i = 0; i < outputs[step].size(); ++i) {
      // The same rows in other tiles: sums in another order.
      EXPECT_NEAR(outputs[step][i], expected[step][i], 1e-5F);
      off = std::max<double>(off, std::fabs(with_all[step][i] - expected[step][i]));
    }
  }
  EXPECT_GT(off, 1e-3) << "the rows left out carry no weight: the test would prove nothing";
}

TEST(OwnPolicy, BiasOfOneValueForAllRowsMattersAgainstSinksAndWindow) {
  auto policy =
      std::make_shared<FirstRows>(RetrievalTraits{.name = "biased", .gives_logit_bias = true});
  const auto plain = outputs_with(policy);
  policy->bias = policy->odd_bias = std::log(2.0F);
  EXPECT_NE(outputs_with(policy), plain);
}

Status first_failure(const RetrievalTraits& traits) {
  Scenario scenario;
  scenario.runtime.own_policy = std::make_shared<FirstRows>(traits);
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  TERRACE_TRY(drive.prefill(100));
  return drive.steps(1);
}

TEST(OwnPolicy, WhatItNeedsIsInsistedOn) {
  EXPECT_TRUE(first_failure({.name = "modest"}).has_value());
  for (const RetrievalTraits& traits :
       {RetrievalTraits{.name = "x", .needs_pre_rope_keys = true},
        RetrievalTraits{.name = "x", .needs_attention_scores = true}}) {
    const Status failed = first_failure(traits);
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, Errc::invalid_argument);
    EXPECT_NE(failed.error().message().find("policy x needs"), std::string::npos);
  }
}

TEST(OwnPolicy, SelectsTheRowsThatAttentionMassIsOf) {
  constexpr std::size_t prompt = 100;
  auto every_second = std::make_shared<FirstRows>(RetrievalTraits{.name = "every_second"});
  every_second->stride = 2;
  Scenario scenario;
  scenario.runtime.own_policy = every_second;
  scenario.runtime.mass_every = 1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.step().has_value());
  const double mass = testing::sampled_mass(drive.sequence());
  // A budget of 48: 4 sinks, 21 tokens of the window, 22 places for selected rows, and the token.
  const auto mass_with = [&](std::size_t first_selected, std::size_t last_selected) {
    double sum = 0;
    for (std::size_t head = 0; head < 2; ++head) {  // the first KV head's query heads
      const auto weights = testing::weights_of(traffic, 0, head, traffic.query(0, prompt), prompt);
      for (std::size_t at = 0; at < 4; ++at) sum += weights[at];
      for (std::size_t at = first_selected; at <= last_selected; at += 2) sum += weights[at];
      for (std::size_t at = prompt - 21; at <= prompt; ++at) sum += weights[at];
    }
    return sum / 2;
  };
  EXPECT_NEAR(mass, mass_with(4, 24), testing::mass_tolerance);
  EXPECT_GT(std::abs(mass - mass_with(5, 25)), 5 * testing::mass_tolerance);  // the rows between
  EXPECT_GT(mass - mass_with(4, 22), 5 * testing::mass_tolerance);            // one less
  EXPECT_GT(mass_with(4, 26) - mass, 5 * testing::mass_tolerance);            // one more
}

TEST(OwnPolicy, ASpeculatedQueryThatItNeedsIsInsistedOn) {
  Scenario scenario;
  scenario.runtime.own_policy =
      std::make_shared<FirstRows>(RetrievalTraits{.name = "x", .needs_speculated_query = true});
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(100).has_value());
  ASSERT_TRUE(drive.steps(1).has_value());  // that give one
  const auto row = traffic.rows(0, {101, 102});
  const auto query = traffic.query(0, 101);
  std::vector<float> output(query.size());
  const Status failed = drive.begin_step()->attend(
      LayerId{0}, {.query = query.data(), .kv = traffic.tensors(row, 1), .output = output.data()});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::invalid_argument);
  EXPECT_NE(failed.error().message().find("policy x needs a speculated query"), std::string::npos);
}

TEST(OwnPolicy, WhatSelectsHasToHaveAnIndex) {
  class WithoutChunks final : public testing::OwnPolicy {
   public:
    using OwnPolicy::OwnPolicy;
    [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& /*shape*/) const override {
      return IndexLayout{};
    }
    [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& queue,
                                        const Ops& /*ops*/) const override {
      return queue.record();
    }
  };
  Scenario scenario;
  scenario.runtime.own_policy = std::make_shared<WithoutChunks>(RetrievalTraits{.name = "x"});
  const auto opened =
      Runtime::open(scenario.runtime, testing::make_scenario_backend(scenario.backend));
  ASSERT_FALSE(opened.has_value());
  EXPECT_NE(opened.error().message().find("policy x selects"), std::string::npos);
}

}  // namespace
}  // namespace terrace
