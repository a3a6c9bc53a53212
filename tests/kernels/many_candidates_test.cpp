// Selections among so many candidates that a device ranks them in tiles: around the borders of
// tiles, with ties on both sides of them, and beside selections among few.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/kernel_run.hpp"
#include "kernels/page_scene.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/refine_scene.hpp"
#include "kernels/selected.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::make_shape;
using testing::PqIndex;
using testing::run;
using testing::Selected;

constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                         GroupReduction::sum_logits};
constexpr PqShape words{.subspaces = 1, .bits = 4};
constexpr std::size_t first = 5;

// A device takes tiles from this many on.
constexpr std::size_t many = 8193;

TEST(SelectionTiles, HaveRoomInTheScratchOfAtLeastAsManyCandidates) {
  const KvShape shape = make_shape(4, 2, 16, Dtype::f16);
  std::size_t floats = 0;
  for (std::size_t candidates = 0; candidates < 300'000; candidates += 1 + candidates / 50) {
    const SelectionTiles tiles = SelectionTiles::of(candidates);
    SCOPED_TRACE(std::to_string(candidates) + " candidates");
    EXPECT_LE(tiles.count, SelectionTiles::most);
    EXPECT_GE(tiles.count * tiles.size, candidates);
    EXPECT_LT(tiles.count * tiles.size, candidates + tiles.size);
    EXPECT_GE(SelectionTiles::floats(shape, candidates), floats);
    floats = SelectionTiles::floats(shape, candidates);
    const std::size_t counts = tiles.count > 1 ? SelectionTiles::counts : 0;
    EXPECT_GE(floats, 2 + tiles.count * (2 * shape.group() + 2 + counts));
  }
}

/// Gives the 16 words of each KV head logits of their own, by the first element of a query of ones.
void fill_words(PqIndex& index, const KvShape& shape, const std::function<float(std::size_t)>& of) {
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::size_t word = 0; word < words.centroids(); ++word) {
      float* const centroid = index.centroid(head, 0, word);
      std::fill_n(centroid, shape.head_dim, 0.0F);
      centroid[0] = of(word);
    }
  }
}

/// Selects among candidates whose words are given, and compares with the reference, position by
/// position: logits are whole numbers, so that ties are exact.
void expect_like_reference(const KvShape& shape, PqIndex& index, std::size_t candidates,
                           std::size_t count) {
  SCOPED_TRACE(testing::to_text(shape) + ", " + std::to_string(count) + " of " +
               std::to_string(candidates) + " candidates, " + testing::seed_text());
  Selected selected(shape, {first, first + candidates}, count);
  std::ranges::fill(selected.query_, 1.0F);
  Selected expected = selected;
  run(PqSelect{
      .common = selected.common(GroupReduction::sum_logits), .pq = words, .index = index.view()});
  kernels::reference::pq_select(
      {.common = expected.common(GroupReduction::sum_logits), .pq = words, .index = index.view()});
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    EXPECT_TRUE(std::ranges::equal(selected.ids(head), expected.ids(head))) << "head " << head;
  }
  EXPECT_TRUE(selected.intact());
}

/// Selects among so many candidates by words of six weights, so that most tie.
void expect_like_reference_of_ties(std::size_t group, std::size_t candidates,
                                   std::initializer_list<std::size_t> counts) {
  const KvShape shape = make_shape(group, candidates < many ? 2 : 1, 4, Dtype::f16);
  PqIndex index(shape, words, 1000, first + candidates, 0);
  index.fill_codes();
  const auto weight = [](std::size_t word) {
    const std::size_t third = word / 3;
    return static_cast<float>(third) - 2;
  };
  fill_words(index, shape, weight);
  for (const std::size_t count : counts) expect_like_reference(shape, index, candidates, count);
}

TEST(ManyCandidates, AreChosenAroundTheBordersOfTiles) {
  std::size_t number = 0;
  for (const std::size_t candidates : {1UL, 1023UL, 1024UL, 1025UL, 2047UL, 2048UL, 2049UL, 4095UL,
                                       4096UL, 4097UL, many - 1, many, many + 1}) {
    for (const std::size_t count : {0UL, 1UL, candidates / 9, candidates - 1, candidates}) {
      const bool is_fourth = number % 4 == 0;
      ++number;
      if (!is_fourth && !testing::takes_shape(number)) continue;
      expect_like_reference_of_ties(1 + number / 4 % 2, candidates, {count});
    }
  }
}

TEST(ManyCandidates, AreChosenOfAsManyAsALongContextHas) {
  std::size_t number = 0;
  for (const std::size_t candidates :
       {5 * 2048 + 1UL, 32'767UL, 32'768UL, 32'769UL, 33'792UL, 131'072UL}) {
    expect_like_reference_of_ties(1 + number++ % 2, candidates, {candidates / 9});
  }
}

TEST(ManyCandidates, TakeTheLowerPositionOfTies) {
  constexpr std::size_t candidates = 9000;
  const KvShape shape = make_shape(2, 1, 4, Dtype::f16);
  PqIndex index(shape, words, 1000, first + candidates, 0);
  fill_words(index, shape, [](std::size_t word) { return static_cast<float>(word); });
  // One weight for all; then a higher one at the end of each tile and the beginning of the next.
  for (std::size_t p = 0; p < first + candidates; ++p) index.code(0, 0, p) = std::byte{7};
  for (const std::size_t count : {1UL, 2048UL, 2049UL, candidates - 1}) {
    expect_like_reference(shape, index, candidates, count);
  }
  for (std::size_t border = 2048; border < candidates; border += 2048) {
    for (std::size_t p = border - 3; p < border + 3; ++p) {
      index.code(0, 0, first + p) = std::byte{9};
    }
  }
  for (const std::size_t count : {3UL, 4UL, 14UL, 24UL, 25UL, 5000UL}) {
    expect_like_reference(shape, index, candidates, count);
  }
}

TEST(ManyCandidates, RankOddLogitsAsDocumented) {
  constexpr float infinity = HUGE_VALF;
  const float odd[] = {std::nanf(""), -infinity, infinity, 1, 2, 3, 1e-42F, -1};
  constexpr std::size_t candidates = 9000;
  for (const std::size_t group : {1UL, 2UL}) {
    const KvShape shape = make_shape(group, 1, 4, Dtype::f16);
    PqIndex index(shape, words, 1000, first + candidates, 0);
    index.fill_codes();
    fill_words(index, shape, [&](std::size_t word) { return odd[word % 8]; });
    for (const std::size_t count : {500UL, 1500UL, 6000UL, 8500UL}) {
      expect_like_reference(shape, index, candidates, count);
    }
    for (const float one : {std::nanf(""), -infinity, infinity}) {
      fill_words(index, shape, [&](std::size_t) { return one; });
      expect_like_reference(shape, index, candidates, 5000);
    }
  }
}

TEST(ManyCandidates, HaveTheLargestWeightsOfEachReduction) {
  for (const std::size_t candidates : {9000UL, 40'000UL}) {
    const KvShape shape = make_shape(3, candidates > many + 1 ? 1 : 2, 16, Dtype::f16);
    const PqShape pq{.subspaces = 8, .bits = 8};
    PqIndex index(shape, pq, 1000, first + candidates, 0);
    index.fill_codes();
    for (const GroupReduction reduction : reductions) {
      Selected selected(shape, {first, first + candidates}, 1000);
      const PqSelect op{.common = selected.common(reduction), .pq = pq, .index = index.view()};
      run(op);
      testing::expect_top(op, kernels::reference::pq_weights);
      EXPECT_TRUE(selected.intact()) << testing::seed_text();
    }
  }
}

TEST(ManyCandidates, AreChosenBesideThoseThatAreHeld) {
  constexpr std::size_t candidates = 9000;
  for (const std::size_t group : {1UL, 2UL}) {
    const KvShape shape = make_shape(group, 2, 16, Dtype::f16);
    const PqShape pq{.subspaces = 8, .bits = 8};
    PqIndex index(shape, pq, 1000, first + candidates, 0);
    index.fill_codes();
    // The first head holds every third position, the second a run over the border of two tiles.
    testing::Guarded<std::uint32_t> held(2 * candidates);
    testing::Guarded<std::uint32_t> held_counts(2);
    for (std::uint32_t p = 0; p < first + candidates; p += 3) held[held_counts[0]++] = p;
    for (std::uint32_t p = 2000; p < 2200; ++p) held[candidates + held_counts[1]++] = p;
    for (const std::size_t count : {100UL, 5999UL, 8799UL, candidates}) {
      Selected selected(shape, {first, first + candidates}, count);
      PqSelect op{.common = selected.common({}), .pq = pq, .index = index.view()};
      op.common.held = {held.data(), held_counts.data(), candidates};
      run(op);
      testing::expect_top(op, kernels::reference::pq_weights);
      EXPECT_TRUE(selected.intact()) << "count " << count << ", " << testing::seed_text();
    }
  }
}

TEST(ManyCandidates, AreThoseOfTheBestPages) {
  namespace scene = testing::page_scene;
  constexpr std::size_t tokens = 20'000;
  const PageShape pages{.page_tokens = 2};
  for (const auto& [group, count] : {std::pair{1UL, 19'901UL}, {2UL, 777UL}}) {
    SCOPED_TRACE("count " + std::to_string(count) + ", " + testing::seed_text());
    const KvShape shape = make_shape(group, 1, 4, Dtype::f16);
    scene::Scene selected(shape, pages, tokens);
    scene::Scene expected(shape, pages, tokens);
    for (scene::Scene* const one : {&selected, &expected}) {
      one->op.common.count.mean = count;
      one->op.common.reduction = GroupReduction::sum_logits;
      std::ranges::fill(one->queries.span(), 1.0F);
      one->fill([](std::size_t page, std::size_t i) {
        return i == 0 ? static_cast<float>(page * 7 % 23) : 0.0F;
      });
    }
    run(selected.op);
    kernels::reference::page_select(expected.op);
    EXPECT_TRUE(selected.ids.same_bits(expected.ids));
    EXPECT_TRUE(selected.counts.same_bits(expected.counts));
    EXPECT_TRUE(selected.scratch.intact() && selected.ids.intact());
  }
}

TEST(ManyCandidates, AreChosenAmongThoseProposed) {
  namespace scene = testing::refine_scene;
  constexpr std::size_t tokens = 9500;
  for (const std::size_t step : {1UL, 3UL}) {
    for (const std::size_t count : {20UL, 3000UL, tokens}) {
      SCOPED_TRACE("step " + std::to_string(step) + ", count " + std::to_string(count) + ", " +
                   testing::seed_text());
      const KvShape shape = make_shape(2, 1, 16, Dtype::f16);
      scene::Scene selected(shape, 2, scene::no_codes, 0, tokens);
      scene::Scene expected(shape, 2, scene::no_codes, 0, tokens);
      for (scene::Scene* const one : {&selected, &expected}) {
        one->op.common.count.mean = count;
        one->propose(step);
      }
      run(selected.op);
      kernels::reference::refine_select(expected.op);
      EXPECT_TRUE(selected.ids.same_bits(expected.ids));
      EXPECT_TRUE(selected.counts.same_bits(expected.counts));
      EXPECT_TRUE(selected.scratch.intact() && selected.ids.intact());
    }
  }
}

/// A call with as many candidates, and what holds its memory.
struct Sized {
  Sized(const KvShape& shape, std::size_t candidates, std::size_t count)
      : index(shape, pq, 1000, first + candidates, 0),
        selected(shape, {first, first + candidates}, count) {
    index.fill_codes();
    op = {.common = selected.common(reductions[candidates % 3]), .pq = pq, .index = index.view()};
  }

  static constexpr PqShape pq{.subspaces = 4, .bits = 6};
  PqIndex index;
  Selected selected;
  PqSelect op;
};

TEST(ManyCandidates, AreChosenInOneLaunchWithFew) {
  const KvShape shape = make_shape(2, 2, 16, Dtype::f16);
  std::vector<std::unique_ptr<Sized>> calls;
  std::vector<PqSelect> batch;
  for (const auto& [candidates, count] : {std::pair{20'000UL, 1000UL},
                                          {1UL, 1UL},
                                          {0UL, 5UL},
                                          {300UL, 20UL},
                                          {9000UL, 9000UL},
                                          {2500UL, 64UL},
                                          {9001UL, 0UL},
                                          {5000UL, 4999UL},
                                          {64UL, 64UL}}) {
    calls.push_back(std::make_unique<Sized>(shape, candidates, count));
    batch.push_back(calls.back()->op);
  }
  run(std::span<const PqSelect>(batch));
  for (const auto& call : calls) {
    Sized alone(shape, call->selected.candidates_.size(), call->selected.count_);
    run(alone.op);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      EXPECT_TRUE(std::ranges::equal(call->selected.ids(head), alone.selected.ids(head)))
          << alone.selected.candidates_.size() << " candidates, " << testing::seed_text();
    }
    EXPECT_TRUE(call->selected.intact());
    testing::expect_top(call->op, kernels::reference::pq_weights);
  }
}

}  // namespace
}  // namespace terrace
