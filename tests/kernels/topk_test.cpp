// Top-k against a full sort.
#include "terrace/kernels/topk.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "kernels/guarded.hpp"
#include "kernels/seed.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::Guarded;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

void expect_like_sort(const std::vector<float>& weights, std::size_t k) {
  SCOPED_TRACE("n " + std::to_string(weights.size()) + ", k " + std::to_string(k) + ", " +
               testing::seed_text());
  const std::size_t count = std::min(k, weights.size());
  const std::vector<double> exact(weights.begin(), weights.end());
  std::vector<std::uint32_t> expected(count);
  kernels::reference::select_topk(exact.data(), exact.size(), k, expected.data());
  Guarded<std::uint32_t> scratch(weights.size());
  Guarded<std::uint32_t> ids(count);
  ASSERT_EQ(
      kernels::host::select_topk(weights.data(), weights.size(), k, scratch.data(), ids.data()),
      count);
  EXPECT_TRUE(std::ranges::equal(ids.span(), expected));
  EXPECT_TRUE(ids.intact() && scratch.intact());
}

void expect_like_sort_for_every_count(const std::function<float(Rng&, std::size_t)>& weight) {
  Rng rng(testing::seed());
  for (const std::size_t n :
       {0U, 1U, 2U, 7U, 8U, 9U, 63U, 64U, 1000U, 2047U, 2048U, 5003U, 40000U}) {
    std::vector<float> weights(n);
    for (std::size_t i = 0; i < n; ++i) weights[i] = weight(rng, i);
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{3}, n / 100, n / 10,
                                n / 2, n - n / 50, n > 0 ? n - 1 : 0, n, n + 5}) {
      expect_like_sort(weights, k);
    }
  }
}

TEST(SelectTopk, AgreesWithSortingNormalWeights) {
  expect_like_sort_for_every_count([](Rng& rng, std::size_t) { return testing::normal(rng); });
}

TEST(SelectTopk, AgreesWithSortingSoftmaxWeights) {
  expect_like_sort_for_every_count(
      [](Rng& rng, std::size_t) { return std::exp(5 * testing::normal(rng) - 20); });
}

TEST(SelectTopk, TakesTheLowestOfManyTies) {
  expect_like_sort_for_every_count(
      [](Rng& rng, std::size_t) { return static_cast<float>(rng.below(4)); });
}

TEST(SelectTopk, TakesTheFirstOfEqualWeights) {
  expect_like_sort_for_every_count([](Rng&, std::size_t) { return 0.25F; });
}

TEST(SelectTopk, IsNotMisledByASortedOrPeriodicOrder) {
  expect_like_sort_for_every_count([](Rng&, std::size_t i) { return static_cast<float>(i); });
  expect_like_sort_for_every_count([](Rng&, std::size_t i) { return -static_cast<float>(i); });
  expect_like_sort_for_every_count([](Rng&, std::size_t i) { return i % 64 == 0 ? 1.0F : 0.0F; });
}

TEST(SelectTopk, IsNotMisledByAFewLargeWeights) {
  // The sample misses the large weight, so that the bracket must fail and be widened.
  expect_like_sort_for_every_count([](Rng&, std::size_t i) { return i == 777 ? 9.0F : 1.0F; });
}

TEST(SelectTopk, RanksNanBelowMinusInfinityAndTakesTheTwoZerosForEqual) {
  const std::vector<float> odd = {nan, -infinity, infinity, -0.0F, 0.0F, 1e-45F, -1e-45F, nan, 3};
  for (std::size_t k = 0; k <= odd.size(); ++k) expect_like_sort(odd, k);
  expect_like_sort_for_every_count([&](Rng& rng, std::size_t) { return odd[rng.below(9)]; });
}

}  // namespace
}  // namespace terrace
