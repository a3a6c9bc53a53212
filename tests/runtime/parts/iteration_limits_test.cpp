#include "services/iteration_limits.hpp"

#include <gtest/gtest.h>

namespace terrace {
namespace {

TEST(IterationLimits, AreThoseOfTheLayerOrOfTheLastOneNamed) {
  IterationLimits limits({.iterations = {3, 7}});
  EXPECT_FALSE(limits.follow_times());
  EXPECT_EQ(limits.limit_of(0, {}, {}), 3U);
  EXPECT_EQ(limits.limit_of(1, {}, {}), 7U);
  EXPECT_EQ(limits.limit_of(30, {}, {}), 7U);
}

TEST(IterationLimits, FallWhereClusteringIsSeenToBeSlow) {
  const policies::HiddenClustering clustering{.rows = 1000, .prompt = {0, 1000}};
  // A layer computes for a millisecond a token, an iteration takes 10 us a row.
  IterationLimits limits(
      {.iterations = {}, .costs = {.compute = {{0, 1e-3, 0}}, .kmeans_iteration = {{0, 1e-5, 0}}}});
  ASSERT_TRUE(limits.follow_times());
  const std::size_t before = limits.limit_of(1, clustering, {});
  limits.note_clustering(1000, 10, std::chrono::seconds(1));
  EXPECT_LT(limits.limit_of(1, clustering, {}), before);
}

TEST(IterationLimits, FallWhereClusteringBeginsLate) {
  const policies::HiddenClustering clustering{.rows = 1000, .prompt = {0, 1000}};
  IterationLimits limits(
      {.iterations = {}, .costs = {.compute = {{0, 1e-3, 0}}, .kmeans_iteration = {{0, 1e-5, 0}}}});
  EXPECT_LT(limits.limit_of(1, clustering, std::chrono::milliseconds(700)),
            limits.limit_of(1, clustering, {}));
}

}  // namespace
}  // namespace terrace
