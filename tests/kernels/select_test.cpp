// Selections by codes and by keys against the reference.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "kernels/dealt_shares.hpp"
#include "kernels/kernel_run.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/selected.hpp"
#include "kernels/selection_check.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::is_top;
using testing::KeyIndex;
using testing::make_shape;
using testing::PqIndex;
using testing::run;
using testing::Selected;
using testing::selection_tolerance;
using testing::takes_shape;

constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                         GroupReduction::sum_logits};

void expect_pq_top(const KvShape& shape, PqShape pq, TokenRange candidates, std::size_t count,
                   GroupReduction reduction) {
  SCOPED_TRACE(testing::to_text(shape) + ", m " + std::to_string(pq.subspaces) + ", b " +
               std::to_string(pq.bits) + ", " + std::to_string(candidates.size()) +
               " candidates, count " + std::to_string(count) + ", reduction " +
               std::to_string(static_cast<int>(reduction)) + ", " + testing::seed_text());
  PqIndex index(shape, pq, 37, candidates.end, 3);
  index.fill_codes();
  Selected selected(shape, candidates, count);
  const PqSelect op{.common = selected.common(reduction), .pq = pq, .index = index.view()};
  run(op);
  testing::expect_top(op, kernels::reference::pq_weights);
  EXPECT_TRUE(selected.intact());
}

TEST(PqSelect, ChoosesTheLargestWeightsForEveryShape) {
  std::size_t number = 0;
  for (const auto& [head_dim, subspaces, bits] : {std::tuple{2U, 1U, 2U},
                                                  {6U, 3U, 4U},
                                                  {64U, 2U, 6U},
                                                  {80U, 5U, 6U},
                                                  {64U, 4U, 6U},
                                                  {64U, 8U, 7U},
                                                  {128U, 4U, 5U},
                                                  {128U, 8U, 6U},
                                                  {128U, 16U, 4U},
                                                  {130U, 2U, 8U},
                                                  {128U, 16U, 8U},
                                                  {80U, 40U, 8U}}) {
    for (const std::size_t group : {1U, 2U, 3U, 4U, 7U, 8U}) {
      for (const GroupReduction reduction : reductions) {
        if (!takes_shape(number++)) continue;
        expect_pq_top(make_shape(group, 2, head_dim, Dtype::f16),
                      {.subspaces = subspaces, .bits = bits}, {5, 205}, 20, reduction);
      }
    }
  }
}

TEST(PqSelect, ChoosesTheLargestWeightsForEveryCount) {
  std::size_t number = 0;
  for (const std::size_t candidates : {0U, 1U, 2U, 63U, 64U, 65U, 3000U}) {
    for (const std::size_t count : {0U, 1U, 10U, 64U, 5000U}) {
      for (const std::size_t group : {1U, 4U}) {
        if (!takes_shape(number++)) continue;
        expect_pq_top(make_shape(group, 3, 64, Dtype::f16), {}, {7, 7 + candidates}, count,
                      GroupReduction::sum_softmax);
      }
    }
  }
}

// No fewer candidates than code words: these are counted and weighed instead of candidates.
TEST(PqSelect, ChoosesTheLargestWeightsByWordsForEveryShape) {
  std::size_t number = 0;
  for (const auto& [subspaces, bits] :
       {std::pair{1U, 4U}, {1U, 6U}, {1U, 7U}, {1U, 8U}, {2U, 4U}, {2U, 5U}, {2U, 6U}}) {
    const std::size_t words = std::max(64U, 1U << subspaces * bits);
    for (const std::size_t candidates : {words - 1, words, 2 * words + 77}) {
      for (const std::size_t group : {1U, 2U, 4U, 7U}) {
        for (const std::size_t count : {std::size_t{1}, words / 3, words, candidates - 7}) {
          if (!takes_shape(number++)) continue;
          expect_pq_top(make_shape(group, 2, 64, Dtype::f16),
                        {.subspaces = subspaces, .bits = bits}, {6, 6 + candidates}, count,
                        reductions[group % 3]);
        }
      }
    }
  }
}

TEST(PqSelect, DealsRowsOutOverHeads) {
  const KvShape shape = make_shape(4, 2, 64, Dtype::f16);
  for (const std::size_t candidates : {500U, 9000U}) {  // by logits, then by words
    PqIndex index(shape, {}, 37, candidates + 5, 3);
    index.fill_codes();
    Selected selected(shape, {5, 5 + candidates}, 150);
    PqSelect op{.common = selected.common(GroupReduction::sum_softmax), .index = index.view()};
    op.common.count = {.mean = 100, .shares = testing::dealt_shares.data()};
    run(op);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<double> weights(candidates);
      kernels::reference::pq_weights(op, head, weights.data());
      EXPECT_TRUE(
          is_top(selected.ids(head), 5, head == 0 ? 50 : 150, weights, selection_tolerance));
    }
    EXPECT_TRUE(selected.intact());
  }
}

/// Selects with whole numbers for centroids and queries, so that f32 is exact and so are ties.
void expect_like_reference(const KvShape& shape, PqShape pq, std::size_t candidates,
                           const std::function<std::byte(Rng&, std::size_t)>& code) {
  PqIndex index(shape, pq, 37, candidates + 5, 0);
  Rng rng(testing::seed(), {22});
  for (std::size_t p = 0; p < candidates + 5; ++p) {
    for (std::size_t plane = 0; plane < shape.kv_heads * pq.subspaces; ++plane) {
      index.code(plane / pq.subspaces, plane % pq.subspaces, p) = code(rng, p);
    }
  }
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::size_t i = 0; i < pq.centroids() * shape.head_dim; ++i) {
      index.centroid(head, 0, 0)[i] = static_cast<float>(rng.below(2));
    }
  }
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, candidates / 9, candidates / 2,
                                  candidates - 1, candidates, candidates + 3}) {
    SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(candidates) + " candidates, " +
                 testing::seed_text());
    Selected selected(shape, {5, 5 + candidates}, count);
    for (float& x : selected.query_) x = std::floor(x);
    Selected expected = selected;
    run(PqSelect{
        .common = selected.common(GroupReduction::sum_logits), .pq = pq, .index = index.view()});
    kernels::reference::pq_select(
        {.common = expected.common(GroupReduction::sum_logits), .pq = pq, .index = index.view()});
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      EXPECT_TRUE(std::ranges::equal(selected.ids(head), expected.ids(head)));
    }
    EXPECT_TRUE(selected.intact());
  }
}

TEST(PqSelect, TakesTheLowerPositionOfTies) {
  std::size_t number = 0;
  for (const std::size_t candidates : {100U, 700U, 9000U}) {  // by logits, then by words
    for (const std::size_t group : {1U, 4U}) {
      const KvShape shape = make_shape(group, 2, 16, Dtype::f16);
      const auto any_code = [](Rng& rng, std::size_t) {
        return static_cast<std::byte>(rng.below(16));
      };
      const auto one_code = [](Rng&, std::size_t) { return std::byte{7}; };
      const auto runs = [](Rng&, std::size_t p) { return static_cast<std::byte>(p / 40 % 16); };
      for (const PqShape pq : {PqShape{1, 4}, PqShape{2, 4}}) {
        if (takes_shape(number++)) expect_like_reference(shape, pq, candidates, any_code);
        if (takes_shape(number++)) expect_like_reference(shape, pq, candidates, one_code);
        if (takes_shape(number++)) expect_like_reference(shape, pq, candidates, runs);
      }
    }
  }
}

// More of one word than 16 bits count, in chunks so short that they are tallied in one place.
TEST(PqSelect, CountsWordsThatNearlyAllHave) {
  constexpr std::size_t candidates = 66'000;
  const KvShape shape = make_shape(1, 1, 16, Dtype::f16);
  const PqShape pq{.subspaces = 1, .bits = 4};
  PqIndex index(shape, pq, 7, candidates, 0);
  for (std::size_t p = 0; p < candidates; ++p) {
    index.code(0, 0, p) = static_cast<std::byte>(p % 1000 == 0 ? p / 1000 % 16 : 7);
  }
  Selected selected(shape, {0, candidates}, 65'990);
  Selected expected = selected;
  run(PqSelect{.common = selected.common({}), .pq = pq, .index = index.view()});
  kernels::reference::pq_select({.common = expected.common({}), .pq = pq, .index = index.view()});
  EXPECT_TRUE(std::ranges::equal(selected.ids(0), expected.ids(0))) << testing::seed_text();
}

TEST(PqSelect, RanksOddLogitsByWordsAsDocumented) {
  const float odd[] = {std::nanf(""), -HUGE_VALF, HUGE_VALF, 1, 2, 3, 1e-42F, -1};
  for (const std::size_t group : {1U, 2U}) {
    const KvShape shape = make_shape(group, 1, 16, Dtype::f16);
    const PqShape pq{.subspaces = 1, .bits = 4};
    PqIndex index(shape, pq, 160, 160, 0);
    for (std::size_t p = 0; p < 160; ++p) index.code(0, 0, p) = static_cast<std::byte>(p % 16);
    for (std::size_t c = 0; c < 16; ++c) {
      for (std::size_t i = 0; i < 16; ++i) index.centroid(0, 0, c)[i] = i == 0 ? odd[c % 8] : 0.0F;
    }
    Selected selected(shape, {0, 160}, 70);
    std::ranges::fill(selected.query_, 1.0F);
    Selected expected = selected;
    run(PqSelect{
        .common = selected.common(GroupReduction::sum_logits), .pq = pq, .index = index.view()});
    kernels::reference::pq_select(
        {.common = expected.common(GroupReduction::sum_logits), .pq = pq, .index = index.view()});
    EXPECT_TRUE(std::ranges::equal(selected.ids(0), expected.ids(0))) << "group " << group;
  }
}

TEST(PqSelect, FindsAWrongCandidate) {
  const KvShape shape = make_shape(4, 1, 64, Dtype::f16);
  PqIndex index(shape, {}, 64, 200, 0);
  index.fill_codes();
  Selected selected(shape, {0, 200}, 20);
  const PqSelect op{.common = selected.common({}), .index = index.view()};
  run(op);
  std::vector<double> weights(200);
  kernels::reference::pq_weights(op, 0, weights.data());
  std::vector<std::uint32_t> ids(selected.ids(0).begin(), selected.ids(0).end());
  ASSERT_TRUE(is_top(ids, 0, 20, weights, selection_tolerance));
  ids.back() = ids.back() == 199 ? 198 : 199;
  EXPECT_FALSE(is_top(ids, 0, 20, weights, selection_tolerance)) << testing::seed_text();
}

TEST(ExactSelect, ChoosesTheLargestWeightsForEveryShape) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {2U, 6U, 64U, 80U, 128U, 130U}) {
      for (const std::size_t group : {1U, 2U, 3U, 4U, 7U, 8U}) {
        for (const std::size_t count : {0U, 1U, 20U, 500U}) {
          if (!takes_shape(number++)) continue;
          const KvShape shape = make_shape(group, 2, head_dim, dtype);
          SCOPED_TRACE(testing::to_text(shape) + ", " + testing::seed_text());
          BlockStore store(shape, 32, 220);
          store.fill_normal(8);
          const TokenRange candidates{9, 215};
          const KeyIndex index(store, 50, {4, 220});
          Selected selected(shape, candidates, count);
          const ExactSelect op{.common = selected.common(reductions[group % 3]),
                               .index = index.view()};
          run(op);
          testing::expect_top(op, kernels::reference::exact_weights);
          EXPECT_TRUE(selected.intact());
        }
      }
    }
  }
}

TEST(ExactSelect, TakesTheLowerPositionOfTies) {
  // Small whole numbers and a head_dim whose root is a power of two: f32 is exact, so are the ties.
  for (const std::size_t group : {1U, 4U}) {
    const KvShape shape = make_shape(group, 2, 16, Dtype::f16);
    BlockStore store(shape, 32, 5000);
    Rng rng(testing::seed());
    store.fill(
        [&rng](std::size_t, std::size_t, std::size_t) { return static_cast<float>(rng.below(2)); });
    const KeyIndex index(store, 512, {0, 5000});
    for (const std::size_t count : {1U, 77U, 2500U}) {
      Selected selected(shape, {1, 4999}, count);
      for (float& x : selected.query_) x = std::floor(x);
      Selected expected = selected;
      run(ExactSelect{.common = selected.common(GroupReduction::sum_logits),
                      .index = index.view()});
      kernels::reference::exact_select(
          {.common = expected.common(GroupReduction::sum_logits), .index = index.view()});
      for (std::size_t head = 0; head < 2; ++head) {
        EXPECT_TRUE(std::ranges::equal(selected.ids(head), expected.ids(head)))
            << "group " << group << ", count " << count << ", " << testing::seed_text();
      }
    }
  }
}

TEST(ExactSelect, RanksDenormals) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    const float tiny = dtype == Dtype::f16 ? 0x1p-24F : 0x1p-130F;
    const KvShape shape = make_shape(1, 2, 16, dtype);
    BlockStore store(shape, 32, 500);
    Rng rng(testing::seed(), {24});
    store.fill([&](std::size_t, std::size_t, std::size_t) {
      return static_cast<float>(rng.below(64)) * tiny;
    });
    const KeyIndex index(store, 512, {0, 500});
    Selected selected(shape, {0, 500}, 77);
    for (float& x : selected.query_) x = std::floor(x);
    Selected expected = selected;
    run(ExactSelect{.common = selected.common({}), .index = index.view()});
    kernels::reference::exact_select({.common = expected.common({}), .index = index.view()});
    for (std::size_t head = 0; head < 2; ++head) {
      EXPECT_TRUE(std::ranges::equal(selected.ids(head), expected.ids(head)))
          << testing::to_text(shape) << ", " << testing::seed_text();
    }
  }
}

TEST(ExactSelect, RanksOddLogitsAsDocumented) {
  for (const GroupReduction reduction : reductions) {
    for (const std::size_t group : {1U, 2U}) {
      const KvShape shape = make_shape(group, 1, 16, Dtype::f32);
      BlockStore store(shape, 8, 8);
      store.fill([](std::size_t p, std::size_t, std::size_t i) {
        const float first[] = {std::nanf(""), -HUGE_VALF, HUGE_VALF, 1, 2, 3, 1e-42F, -1};
        return i == 0 ? first[p] : 0.0F;
      });
      const KeyIndex index(store, 8, {0, 8});
      Selected selected(shape, {0, 8}, 4);
      std::ranges::fill(selected.query_, 1.0F);
      run(ExactSelect{.common = selected.common(reduction), .index = index.view()});
      // +inf first; under softmax it takes all the weight and the rest tie at 0.
      EXPECT_EQ(selected.ids(0).size(), 4U);
      EXPECT_TRUE(std::ranges::count(selected.ids(0), 2U) == 1);
      if (group == 1 || reduction == GroupReduction::sum_logits) {
        EXPECT_TRUE(std::ranges::equal(selected.ids(0), std::vector<std::uint32_t>{2, 3, 4, 5}));
      }
    }
  }
}

TEST(ExactSelect, TakesNothingFromAHeadThatKnowsNoCandidate) {
  for (const GroupReduction reduction : reductions) {
    const KvShape shape = make_shape(3, 1, 16, Dtype::f32);
    BlockStore store(shape, 8, 8);
    store.fill([](std::size_t p, std::size_t, std::size_t) { return static_cast<float>(p % 5); });
    const KeyIndex index(store, 8, {0, 8});
    for (std::size_t lost = 0; lost < 3; ++lost) {
      Selected selected(shape, {0, 8}, 3);
      std::ranges::fill(selected.query_, 1.0F);
      selected.query_[lost * shape.head_dim + 2] = std::nanf("");
      Selected expected = selected;
      run(ExactSelect{.common = selected.common(reduction), .index = index.view()});
      kernels::reference::exact_select(
          {.common = expected.common(reduction), .index = index.view()});
      const std::vector<std::uint32_t> wanted{2, 3, 4};
      EXPECT_TRUE(std::ranges::equal(selected.ids(0), wanted)) << lost;
      EXPECT_TRUE(std::ranges::equal(expected.ids(0), wanted)) << lost;
    }
  }
}

TEST(ExactSelect, AddsInfiniteLogitsOfManyHeads) {
  constexpr std::size_t group = 4;
  const KvShape shape = make_shape(group, 1, 16, Dtype::f32);
  BlockStore store(shape, 8, 8);
  store.fill([](std::size_t p, std::size_t, std::size_t i) {
    const float first[] = {HUGE_VALF, -HUGE_VALF, std::nanf(""), 1, 2, 3, 10, -10};
    return i == 0 ? first[p] : 0.0F;
  });
  const KeyIndex index(store, 8, {0, 8});
  // If one head opposes the others the first three weights are all -inf, and tie.
  for (std::size_t other = 0; other < group; ++other) {
    Selected selected(shape, {0, 8}, 6);
    std::ranges::fill(selected.query_, 4.0F);
    selected.query_[other * shape.head_dim] = -4;
    Selected expected = selected;
    run(ExactSelect{.common = selected.common(GroupReduction::sum_logits), .index = index.view()});
    kernels::reference::exact_select(
        {.common = expected.common(GroupReduction::sum_logits), .index = index.view()});
    const std::vector<std::uint32_t> wanted{0, 3, 4, 5, 6, 7};
    EXPECT_TRUE(std::ranges::equal(selected.ids(0), wanted)) << other;
    EXPECT_TRUE(std::ranges::equal(expected.ids(0), wanted)) << other;
  }
}

}  // namespace
}  // namespace terrace
