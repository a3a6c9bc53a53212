#include "terrace/policies/iteration_planner.hpp"

#include <gtest/gtest.h>

#include <vector>

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
  EXPECT_NEAR(fit.c[0], 2e-3, 1e-9);
  EXPECT_EQ(fit.c[1], 0);
}

TEST(FitTime, RefusesTooFewSamples) {
  EXPECT_FALSE(fit_time(std::vector<TimeSample>{{1, 1}}, 1).has_value());
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
}

TEST(IterationPlanner, TakesWhatFitsInsideTheLimits) {
  const PlannerOptions limits{.iterations_min = 3, .iterations_max = 50};
  EXPECT_EQ(IterationPlanner(model_of(20e-6, 1e-6), limits).plan(1000), 20U);
  EXPECT_EQ(IterationPlanner(model_of(1e-6, 1e-6), limits).plan(1000), 3U);
  EXPECT_EQ(IterationPlanner(model_of(1, 1e-6), limits).plan(1000), 50U);
  EXPECT_EQ(IterationPlanner(model_of(1, 0), limits).plan(1000), 3U) << "no slope: the floor";
}

TEST(IterationPlanner, NeverPlansFewerIterationsForMoreCompute) {
  std::size_t before = 0;
  for (double compute = 0; compute < 1e-4; compute += 1e-6) {
    const std::size_t planned = IterationPlanner(model_of(compute, 1e-6), {}).plan(1000);
    EXPECT_GE(planned, before);
    before = planned;
  }
}

TEST(IterationPlanner, SlowsDownAtOnceAndRecoversSlowly) {
  IterationPlanner planner(model_of(20e-6, 1e-6), {});
  planner.observe(1000, 20, 2 * 20e-3);
  EXPECT_EQ(planner.plan(1000), 10U);
  planner.observe(1000, 10, 10e-3);
  EXPECT_EQ(planner.plan(1000), 10U) << "one quick layer does not undo it";
  for (int i = 0; i < 100; ++i) planner.observe(1000, 20, 20e-3);
  EXPECT_EQ(planner.plan(1000), 19U);
}

}  // namespace
}  // namespace terrace::policies
