#include "terrace/kernels/page_select.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/dealt_shares.hpp"
#include "kernels/finds_fault.hpp"
#include "kernels/page_scene.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::Guarded;
using testing::make_shape;
using testing::run;
using testing::page_scene::first;
using testing::page_scene::Scene;
using testing::page_scene::tokens;

/// Checks that `scene` holds what `expected` selects by the reference.
void expect_same(Scene& scene, Scene& expected) {
  kernels::reference::page_select(expected.op);
  EXPECT_TRUE(scene.ids.same_bits(expected.ids));
  EXPECT_TRUE(scene.counts.same_bits(expected.counts));
  EXPECT_TRUE(scene.scratch.intact() && scene.ids.intact());
}

TEST(PageSelect, ChoosesWhatTheReferenceChooses) {
  constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                           GroupReduction::sum_logits};
  constexpr Dtype dtypes[] = {Dtype::f16, Dtype::bf16, Dtype::f32};
  std::size_t number = 0;
  for (const std::size_t group : {1UL, 3UL, 5UL}) {
    for (const bool bounds : {false, true}) {
      for (const std::size_t page_tokens : {1UL, 16UL, 64UL}) {
        for (std::size_t each = 0; each < 3; ++each) {
          const KvShape shape = make_shape(group, 2, 24, dtypes[(group + each) % 3]);
          for (const std::size_t count : {0UL, 1UL, 50UL, 1000UL}) {
            if (!testing::takes_shape(number++)) continue;
            Scene scene(shape, {.page_tokens = page_tokens, .bounds = bounds});
            scene.op.common.count.mean = count;
            scene.op.common.reduction = reductions[each];
            run(scene.op);
            Scene expected(shape, scene.op.pages);
            expected.op.common.count.mean = count;
            expected.op.common.reduction = reductions[each];
            SCOPED_TRACE(testing::to_text(shape) + ", count " + std::to_string(count) + ", " +
                         testing::seed_text());
            expect_same(scene, expected);
          }
        }
      }
    }
  }
}

TEST(PageSelect, DealsRowsOutOverHeads) {
  const KvShape shape = make_shape(3, 2, 24, Dtype::f16);
  const PageShape pages{.page_tokens = 16, .bounds = true};
  Scene scene(shape, pages);
  Scene expected(shape, pages);
  for (SelectCommon* const common : {&scene.op.common, &expected.op.common}) {
    common->count = {.mean = 50, .shares = testing::dealt_shares.data()};
  }
  run(scene.op);
  expect_same(scene, expected);
  EXPECT_EQ(scene.counts[0], 25U);
  EXPECT_EQ(scene.counts[1], 75U);
}

/// Selects for `count` in two scenes that `prepare` makes alike, and compares.
void expect_same_of(const KvShape& shape, PageShape pages, std::size_t count,
                    const std::function<void(Scene&)>& prepare) {
  SCOPED_TRACE(testing::to_text(shape) + (pages.bounds ? ", bounds" : "") + ", count " +
               std::to_string(count) + ", " + testing::seed_text());
  Scene scene(shape, pages);
  Scene expected(shape, pages);
  for (Scene* const one : {&scene, &expected}) {
    one->op.common.count.mean = count;
    prepare(*one);
  }
  run(scene.op);
  expect_same(scene, expected);
}

constexpr std::size_t candidates = 244;  // of a scene

TEST(PageSelect, RanksOddNumbersAsDocumented) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {std::nanf(""), -infinity, infinity, 1, -infinity, 3, -1, 2};
  std::size_t number = 0;
  for (const std::size_t group : {1UL, 2UL}) {
    for (const bool bounds : {false, true}) {
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
        for (const GroupReduction reduction :
             {GroupReduction::sum_softmax, GroupReduction::max_softmax,
              GroupReduction::sum_logits}) {
          for (const std::size_t count : {40UL, 100UL, 150UL, 210UL}) {
            if (!testing::takes_shape(number++)) continue;
            expect_same_of(make_shape(group, 2, 16, dtype), {.page_tokens = 16, .bounds = bounds},
                           count, [&](Scene& scene) {
                             scene.op.common.reduction = reduction;
                             std::ranges::fill(scene.queries.span(), 1.0F);
                             scene.fill([&](std::size_t page, std::size_t i) {
                               return i == 0 ? odd[page % 8] : 0.0F;
                             });
                           });
          }
        }
      }
    }
  }
}

TEST(PageSelect, TakesPagesThatAreNoNumbersLast) {
  const KvShape shape = make_shape(1, 2, 16, Dtype::f16);
  Scene scene(shape, {.page_tokens = 16});
  std::ranges::fill(scene.queries.span(), 1.0F);
  scene.fill([](std::size_t page, std::size_t) { return page < 4 ? std::nanf("") : -HUGE_VALF; });
  scene.op.common.count.mean = candidates - 57;  // all but those of four pages, the first cut by 7
  run(scene.op);
  for (const std::size_t head : {0UL, 1UL}) {
    EXPECT_EQ(scene.counts[head], candidates - 57);
    EXPECT_EQ(scene.ids[head * tokens], first + 64);
  }
}

TEST(PageSelect, TakesQueriesOfOddNumbers) {
  std::size_t number = 0;
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const std::size_t group : {1UL, 2UL}) {
      for (const bool bounds : {false, true}) {
        if (!testing::takes_shape(number++)) continue;
        expect_same_of(make_shape(group, 2, 16, Dtype::f16), {.page_tokens = 16, .bounds = bounds},
                       100, [&](Scene& scene) { scene.queries[3] = odd; });
      }
    }
  }
}

TEST(PageSelect, RanksDenormals) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    const float tiny = dtype == Dtype::f16 ? 0x1p-24F : 0x1p-130F;
    for (const bool bounds : {false, true}) {
      expect_same_of(make_shape(1, 2, 16, dtype), {.page_tokens = 4, .bounds = bounds}, 101,
                     [&](Scene& scene) {
                       Rng rng(testing::seed(), {83});
                       for (float& x : scene.queries.span()) x = std::floor(x);
                       scene.fill([&](std::size_t, std::size_t) {
                         return static_cast<float>(rng.below(64)) * tiny;
                       });
                     });
    }
  }
}

TEST(PageSelect, TakesTheLowerOfEqualPages) {
  for (const std::size_t group : {1UL, 2UL, 5UL}) {
    Scene scene(make_shape(group, 2, 24, Dtype::f16), {.page_tokens = 16, .bounds = true});
    scene.fill([](std::size_t, std::size_t i) { return static_cast<float>(i % 7); });
    scene.op.common.count.mean = 50;
    run(scene.op);
    for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(scene.ids[i], first + 7 + i) << group;
  }
}

TEST(PageSelect, FindsWhatIsSelectedByAnotherRule) {
  using Mutation = void (*)(PageSelect&);
  const Mutation mutations[] = {
      [](PageSelect&) {},
      [](PageSelect& op) { op.common.count.mean -= 1; },
      [](PageSelect& op) { op.common.candidates.begin += 60; },
      [](PageSelect& op) { op.common.reduction = GroupReduction::sum_logits; },
      [](PageSelect& op) { op.index.chunks += 1; },
      [](PageSelect& op) { op.common.query += op.common.shape.head_dim; },
  };
  for (std::size_t i = 0; i < std::size(mutations); ++i) {
    Scene scene(make_shape(4, 2, 24, Dtype::f16), {.page_tokens = 4, .bounds = true});
    Scene expected(scene.op.common.shape, scene.op.pages);
    for (SelectCommon* const common : {&scene.op.common, &expected.op.common}) {
      common->count.mean = 60;
      // The op leaves out the last of the queries and chunks there are: mutations take the next
      // ones.
      common->shape.query_heads = 6;
      common->candidates.end = first + 150;
    }
    mutations[i](scene.op);
    run(scene.op);
    EXPECT_EQ(testing::finds_fault([&] { expect_same(scene, expected); }), i > 0) << i;
  }
}

TEST(MapQueries, MultipliesEachQueryByTheMatrixOfItsHead) {
  const KvShape shape{.layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 10};
  Rng rng(testing::seed(), {82});
  std::vector<float> queries(60);
  std::vector<float> maps(200);
  Guarded<float> mapped(60);
  std::vector<float> expected(60);
  for (float& x : queries) x = testing::normal(rng);
  for (float& x : maps) x = testing::normal(rng);
  MapQueries op{
      .shape = shape, .query = queries.data(), .maps = maps.data(), .mapped = mapped.data()};
  run(op);
  op.mapped = expected.data();
  kernels::reference::map_queries(op);
  // Sums of ten f32 products of order 1: 1e-5 is ten times their rounding.
  for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(mapped[i], expected[i], 1e-5) << i;
  EXPECT_TRUE(mapped.intact());
}

}  // namespace
}  // namespace terrace
