// Every instruction set that this machine has gives results within tolerance, not the best one
// only.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "kernels/attention_scenario.hpp"
#include "kernels/guarded.hpp"
#include "kernels/pq_index.hpp"
#include "terrace/kernels/kmeans.hpp"
#include "terrace/kernels/select.hpp"
#include "terrace/kernels/topk.hpp"

namespace terrace {
namespace {

using testing::AttentionScenario;
using testing::max_difference;

/// Makes one target the only one; gives all of them back at the end.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// Calls check() with each instruction set in turn; the fallback stands for machines with none.
template <typename Check>
void for_each_target(Check check) {
  const std::int64_t fallback = HWY_STATIC_TARGET;
  for (std::int64_t left = hwy::SupportedTargets() | fallback; left != 0; left &= left - 1) {
    const OnlyTarget only(left & -left);
    SCOPED_TRACE(hwy::TargetName(left & -left));
    check();
  }
}

TEST(EveryInstructionSet, AttendsLikeTheReference) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const auto& [head_dim, heads] :
         {std::pair{6U, 7U}, {64U, 7U}, {64U, 8U}, {128U, 2U}, {128U, 5U}, {130U, 7U}}) {
      const KvShape shape{
          .layers = 1, .query_heads = heads, .kv_heads = 1, .head_dim = head_dim, .dtype = dtype};
      AttentionScenario scenario({.shape = shape,
                                  .window = 530,
                                  .selected = 5,
                                  .biased = true,
                                  .misalignment = heads % 4});
      const std::vector<float> expected = scenario.run_reference();
      for_each_target([&] {
        // The tolerance of attention_test.cpp.
        EXPECT_LE(max_difference(scenario.run(), expected), 5e-5);
        EXPECT_TRUE(scenario.guards_intact());
      });
    }
  }
}

TEST(EveryInstructionSet, SelectsTheSame) {
  Rng rng(testing::seed());
  std::vector<float> weights(5001);
  for (float& weight : weights) weight = testing::normal(rng);
  const std::vector<double> exact(weights.begin(), weights.end());
  std::vector<std::uint32_t> expected(400);
  kernels::reference::select_topk(exact.data(), exact.size(), 400, expected.data());
  for_each_target([&] {
    testing::Guarded<std::uint32_t> scratch(weights.size());
    std::vector<std::uint32_t> ids(400);
    kernels::host::select_topk(weights.data(), weights.size(), 400, scratch.data(), ids.data());
    EXPECT_EQ(ids, expected);
    EXPECT_TRUE(scratch.intact());
  });
}

TEST(EveryInstructionSet, SelectsTheSameByCodes) {
  // Whole numbers are exact, so that all agree on ties, too. By words, then by logits.
  for (const PqShape pq : {PqShape{2, 4}, PqShape{4, 4}}) {
    const KvShape shape{.layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 16};
    constexpr std::size_t candidates = 1003;
    testing::PqIndex index(shape, pq, 100, candidates, 0);
    index.fill_codes();
    Rng rng(testing::seed(), {51});
    for (std::size_t i = 0; i < 2 * pq.centroids() * 16; ++i) {
      index.centroid(0, 0, 0)[i] = static_cast<float>(rng.below(3));
    }
    std::vector<float> query(6 * 16);
    for (float& x : query) x = static_cast<float>(rng.below(3));
    std::vector<float> scratch(2 * 4 * 1024);
    std::vector<std::uint32_t> ids(2 * 300);
    std::vector<std::uint32_t> expected(ids.size());
    std::vector<std::uint32_t> counts(2);
    PqSelect op{.common = {.shape = shape,
                           .query = query.data(),
                           .candidates = {0, candidates},
                           .count = 300,
                           .reduction = GroupReduction::sum_logits,
                           .ids = expected.data(),
                           .id_count = counts.data(),
                           .id_stride = 300,
                           .scratch = scratch.data()},
                .pq = pq,
                .index = index.view()};
    kernels::reference::pq_select(op);
    op.common.ids = ids.data();
    for_each_target([&] {
      std::ranges::fill(ids, 0U);
      Serial threads;
      kernels::host::pq_select(op, threads);
      EXPECT_EQ(ids, expected) << pq.subspaces << " sub-spaces, " << testing::seed_text();
    });
  }
}

TEST(EveryInstructionSet, ClustersTheSameWholeNumbers) {
  // Sums of few small whole numbers are exact, so that only the last division rounds.
  Rng rng(testing::seed());
  std::vector<float> rows(600 * 5);
  for (float& x : rows) x = static_cast<float>(rng.below(30));
  std::vector<std::uint32_t> expected;
  for_each_target([&] {
    std::vector<float> centroids(20 * 5);
    std::vector<std::uint32_t> labels(600);
    Serial threads;
    ASSERT_TRUE(kernels::host::kmeans({.rows = rows.data(), .row_count = 600, .dims = 5},
                                      {.clusters = 20, .iterations = 0, .seed = 4},
                                      {.centroids = centroids.data(), .labels = labels.data()},
                                      threads)
                    .has_value());
    if (expected.empty()) expected = labels;
    EXPECT_EQ(labels, expected);
  });
}

}  // namespace
}  // namespace terrace
