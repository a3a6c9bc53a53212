// Instruction sets compared with each other. That each of them gives right results is for the
// tests of ops to say, which run on every one (isa_environment.cpp).
#include <gtest/gtest.h>

#include "kernels/seed.hpp"
#include "terrace/kernels/isa.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace {
namespace {

TEST(InstructionSets, ClusterWholeNumbersAlike) {
  // Sums of few small whole numbers are exact, so that only the last division rounds.
  Rng rng(testing::seed());
  std::vector<float> rows(600 * 5);
  for (float& x : rows) x = static_cast<float>(rng.below(30));
  std::vector<std::uint32_t> expected;
  for (const kernels::host::IsaLevel& level : kernels::host::isa_levels()) {
    if (!kernels::host::use_isa(level.name)) continue;
    std::vector<float> centroids(20 * 5);
    std::vector<std::uint32_t> labels(600);
    Serial threads;
    ASSERT_TRUE(kernels::host::kmeans({.rows = rows.data(), .row_count = 600, .dims = 5},
                                      {.clusters = 20, .iterations = 0, .seed = 4},
                                      {.centroids = centroids.data(), .labels = labels.data()},
                                      threads)
                    .has_value());
    if (expected.empty()) expected = labels;
    EXPECT_EQ(labels, expected) << level.name << ", " << testing::seed_text();
  }
  ASSERT_TRUE(kernels::host::use_isa("auto").has_value());
}

}  // namespace
}  // namespace terrace
