#include "terrace/policies/iteration_planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/seed.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::policies {
namespace {

CostModel model_of(double compute, double kmeans_iteration) {
  return {.compute = {{0, compute, 0}}, .kmeans_iteration = {{0, kmeans_iteration, 0}}};
}

TEST(FitTime, FindsExactCoefficients) {
  std::vector<TimeSample> samples;
  for (const double n : {500.0, 1000.0, 4000.0, 16000.0}) {
    samples.push_back({n, 3e-3 + 2e-6 * n + 5e-11 * n * n});
  }
  const Polynomial fit = fit_time(samples, 2).value();
  EXPECT_NEAR(fit.c[0], 3e-3, 1e-9);
  EXPECT_NEAR(fit.c[1], 2e-6, 1e-12);
  EXPECT_NEAR(fit.c[2], 5e-11, 1e-16);
}

TEST(FitTime, NeverGivesANegativeCoefficient) {
  const std::vector<TimeSample> falling{{1000, 3e-3}, {2000, 2e-3}, {3000, 1e-3}};
  const Polynomial fit = fit_time(falling, 1).value();
  // The constant with the smallest relative gaps: (1/3 + 1/2 + 1) / (1/9 + 1/4 + 1) ms.
  EXPECT_NEAR(fit.c[0], 66e-3 / 49, 1e-9);
  EXPECT_EQ(fit.c[1], 0);
}

TEST(FitTime, SaysHowFarItIsFromTheSamples) {
  const std::vector<TimeSample> samples{{1, 1}, {2, 3}};
  EXPECT_DOUBLE_EQ(residual(samples, {{0, 1, 0}}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(residual(samples, {{-1, 2, 0}}), 0);
}

TEST(FitTime, RefusesTooFewSamples) {
  EXPECT_FALSE(fit_time(std::vector<TimeSample>{{1, 1}}, 1).has_value());
  EXPECT_FALSE(fit_time(std::vector<TimeSample>{{1, 1}, {1, 2}, {1, 3}}, 2).has_value());
  EXPECT_FALSE(fit_time(std::vector<TimeSample>{{-1, 1}, {2, 2}}, 1).has_value());
  EXPECT_FALSE(fit_time(std::vector<TimeSample>{{1, 1}, {2, 0}}, 1).has_value());
}

TEST(FitKmeans, SeparatesTheIterationFromTheRest) {
  std::vector<KmeansSample> samples;
  for (const double n : {1000.0, 2000.0, 8000.0}) {
    for (const double i : {3.0, 9.0}) {
      samples.push_back({n, i, 1e-3 + 1e-7 * n + i * (2e-5 + 3e-7 * n)});
    }
  }
  CostModel model;
  ASSERT_TRUE(fit_kmeans(samples, model));
  EXPECT_NEAR(model.kmeans(4000, 5), 1e-3 + 4e-4 + 5 * (2e-5 + 1.2e-3), 1e-9);
  EXPECT_LT(model.residuals.kmeans, 1e-6);
}

// A cluster for each so many tokens: twice the tokens take four times as long.
TEST(FitKmeans, FollowsClustersThatGrowWithTheLength) {
  std::vector<KmeansSample> samples;
  const auto time = [](double n, double i) {
    return 2e-7 * n + (i + 1) * (3e-8 * n + 4e-12 * n * n);
  };
  for (const double n : {2048.0, 6144.0, 16384.0}) {
    for (const double i : {3.0, 9.0}) samples.push_back({n, i, time(n, i)});
  }
  CostModel model;
  ASSERT_TRUE(fit_kmeans(samples, model));
  EXPECT_NEAR(model.kmeans(65536, 5), time(65536, 5), 1e-6);
  EXPECT_LT(model.residuals.kmeans, 1e-6);
}

TEST(FitKmeans, FitsLinesToTwoLengths) {
  std::vector<KmeansSample> samples;
  for (const double n : {1000.0, 2000.0}) {
    for (const double i : {3.0, 9.0}) samples.push_back({n, i, i * n});
  }
  CostModel model;
  ASSERT_TRUE(fit_kmeans(samples, model));
  EXPECT_NEAR(model.kmeans(8000, 5), 40000, 1e-6);
}

// One length whose times over iterations begin at zero must not decide the fit of all lengths.
TEST(FitKmeans, IsNotLedByOneLengthThatBeginsAtNothing) {
  std::vector<KmeansSample> samples;
  for (const double n : {1000.0, 2000.0, 4000.0, 8000.0}) {
    for (const double i : {3.0, 9.0}) {
      const double early = n == 2000 && i == 3 ? 0.9 : 1;
      samples.push_back({n, i, early * (2e-6 * n + i * 1e-6 * n)});
    }
  }
  CostModel model;
  ASSERT_TRUE(fit_kmeans(samples, model));
  EXPECT_NEAR(model.kmeans_base(8000), 16e-3, 3e-3);
  EXPECT_LT(model.residuals.kmeans, 0.12);
}

TEST(FitKmeans, RefusesWhatSaysTooLittle) {
  CostModel model;
  EXPECT_FALSE(fit_kmeans(std::vector<KmeansSample>{{1, 3, 1}, {1, 9, 2}}, model));
  EXPECT_FALSE(fit_kmeans(std::vector<KmeansSample>{{1, 3, 1}, {2, 3, 1}, {2, 9, 1}}, model));
  EXPECT_FALSE(
      fit_kmeans(std::vector<KmeansSample>{{1, 3, 1}, {1, 9, 0}, {2, 3, 1}, {2, 9, 1}}, model));
}

TEST(CostModel, ComputesTheRestOfAPromptAfterItsBeginning) {
  const CostModel model{.compute = {{3, 2, 1}}};
  EXPECT_DOUBLE_EQ(model.compute_behind(0, 10), 123);
  EXPECT_DOUBLE_EQ(model.compute_behind(90, 10), 3 + 20 + 100 * 100 - 90 * 90);
}

HiddenClustering whole(std::size_t tokens) { return {.rows = tokens, .prompt = {0, tokens}}; }

PlannerOptions without_margin() { return {.margin = 0}; }

TEST(IterationPlanner, TakesWhatFitsInsideTheLimits) {
  const PlannerOptions limits{.iterations_min = 3, .iterations_max = 50, .margin = 0};
  EXPECT_EQ(IterationPlanner(model_of(20e-6, 1e-6), limits).plan(1000), 20U);
  EXPECT_EQ(IterationPlanner(model_of(1e-6, 1e-6), limits).plan(1000), 3U);
  EXPECT_EQ(IterationPlanner(model_of(1, 1e-6), limits).plan(1000), 50U);
  EXPECT_EQ(IterationPlanner(model_of(1, 0), limits).plan(1000), 3U) << "no slope: the floor";
}

TEST(IterationPlanner, LeavesTheMarginAndWhatHasPassedAlready) {
  EXPECT_EQ(IterationPlanner(model_of(20e-6, 1e-6), {.margin = 0.25}).plan(1000), 15U);
  EXPECT_EQ(IterationPlanner(model_of(20e-6, 1e-6), without_margin()).plan(whole(1000), 12e-3), 8U);
}

TEST(IterationPlanner, NeverPlansFewerIterationsForMoreCompute) {
  std::size_t before = 0;
  for (int microseconds = 0; microseconds < 100; ++microseconds) {
    const double compute = 1e-6 * microseconds;
    const std::size_t planned = IterationPlanner(model_of(compute, 1e-6), {}).plan(1000);
    EXPECT_GE(planned, before);
    before = planned;
  }
}

TEST(IterationPlanner, SlowsDownAtOnceAndRecoversSlowly) {
  IterationPlanner planner(model_of(20e-6, 1e-6), without_margin());
  planner.observe_clustering(1000, 20, 2 * 20e-3);
  EXPECT_EQ(planner.plan(1000), 10U);
  planner.observe_clustering(1000, 10, 10e-3);
  EXPECT_EQ(planner.plan(1000), 10U) << "one quick layer does not undo it";
  for (int i = 0; i < 100; ++i) planner.observe_clustering(1000, 20, 20e-3);
  EXPECT_EQ(planner.plan(1000), 19U);
}

TEST(IterationPlanner, FollowsComputeThatIsQuickerThanItWas) {
  IterationPlanner planner(model_of(20e-6, 1e-6), without_margin());
  planner.observe_compute(whole(1000), 10e-3);
  EXPECT_EQ(planner.plan(1000), 10U);
  planner.observe_compute(whole(1000), 20e-3);
  EXPECT_EQ(planner.plan(1000), 11U);
}

TEST(IterationPlanner, HidesAnIndexOfAllBehindTheComputeOfThePromptsRest) {
  const HiddenClustering rest{.rows = 1000, .prompt = {900, 1000}};
  IterationPlanner planner(model_of(205e-6, 1e-6), without_margin());
  EXPECT_EQ(planner.plan(rest, 0), 20U);
  planner.observe_compute(rest, 20.5e-3);
  EXPECT_EQ(planner.plan(rest, 0), 20U);
  planner.observe_compute(rest, 10.5e-3);
  EXPECT_EQ(planner.plan(rest, 0), 10U);
}

/// Layers of a prefill on a clock of its own. Compute of a layer follows compute; clustering of a
/// layer follows its compute and the clustering before it, and is late if it outlasts the next
/// layer's compute.
class Prefill {
 public:
  explicit Prefill(double noise = 0.05)
      : noise_(noise), planner_(model_of(layer_seconds / tokens, iteration_seconds / tokens), {}) {}

  struct Outcome {
    std::size_t iterations = 0;
    bool late = false;
  };

  /// A layer with a clustering that takes `slowness` times the measured time, with noise on all.
  Outcome layer(double slowness) {
    const double compute_end = compute_end_;
    const double begin = std::max(compute_end, cluster_end_);
    const std::size_t iterations = planner_.plan(whole(tokens), begin - compute_end);
    const double clustering =
        static_cast<double>(iterations) * iteration_seconds * slowness * noise();
    const double next_compute = layer_seconds * noise();
    cluster_end_ = begin + clustering;
    compute_end_ = compute_end + next_compute;
    planner_.observe_clustering(tokens, static_cast<double>(iterations), clustering);
    planner_.observe_compute(whole(tokens), next_compute);
    return {iterations, cluster_end_ > compute_end_};
  }

 private:
  static constexpr std::size_t tokens = 1000;
  static constexpr double layer_seconds = 20e-3;
  static constexpr double iteration_seconds = 1e-3;

  double noise() { return 1 - noise_ + 2 * noise_ * rng_.uniform(); }

  double noise_;
  Rng rng_{terrace::testing::seed()};
  IterationPlanner planner_;
  double compute_end_ = 0;
  double cluster_end_ = 0;
};

TEST(IterationPlanner, IsLateTwiceAtMostWhenTheMachineSlowsDown) {
  Prefill prefill;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(prefill.layer(1).late) << i;
  int late = 0;
  for (int i = 0; i < 200; ++i) late += prefill.layer(2).late ? 1 : 0;
  EXPECT_LE(late, 2);
}

// Noise of 5 % lies inside the margin; of what lies outside the worst is remembered for a while.
TEST(IterationPlanner, IsSeldomLateOnANoisyMachine) {
  constexpr int layers = 2000;
  for (const auto& [noise, late_most] : {std::pair{0.15, layers / 50}, {0.3, layers / 20}}) {
    SCOPED_TRACE(std::to_string(noise) + ", " + terrace::testing::seed_text());
    Prefill prefill(noise);
    int late = 0;
    double iterations = 0;
    for (int i = 0; i < layers; ++i) {
      const Prefill::Outcome layer = prefill.layer(1);
      late += layer.late ? 1 : 0;
      iterations += static_cast<double>(layer.iterations);
    }
    EXPECT_LE(late, late_most);
    EXPECT_GT(iterations / layers, 10) << "half of what there is room for";
  }
}

TEST(IterationPlanner, ClimbsBackWhenTheMachineRecovers) {
  Prefill prefill;
  std::size_t before = 0;
  for (int i = 0; i < 100; ++i) before = prefill.layer(1).iterations;
  for (int i = 0; i < 100; ++i) prefill.layer(2);
  EXPECT_LE(prefill.layer(1).iterations, before / 2 + 1);
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(prefill.layer(1).late) << i;
  EXPECT_GE(prefill.layer(1).iterations + 1, before);
}

TEST(IterationPlanner, DoesNotSwing) {
  Prefill prefill;
  for (const double slowness : {1.0, 2.0, 0.7, 1.3}) {
    for (int i = 0; i < 100; ++i) prefill.layer(slowness);  // finds its level
    std::size_t fewest = SIZE_MAX;
    std::size_t most = 0;
    for (int i = 0; i < 200; ++i) {
      const std::size_t iterations = prefill.layer(slowness).iterations;
      fewest = std::min(fewest, iterations);
      most = std::max(most, iterations);
    }
    // Noise of 5 % on both sides moves the plan by no more than its own size.
    EXPECT_LE(static_cast<double>(most - fewest), 0.12 * static_cast<double>(most) + 1) << slowness;
  }
}

}  // namespace
}  // namespace terrace::policies
