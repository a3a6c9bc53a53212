// Instruction sets compared with each other. The tests of ops, which run on every one
// (isa_environment.cpp), check that each gives right results.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>

#include "host/scores.hpp"
#include "kernels/kernel_run.hpp"
#include "kernels/part_threads.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/seed.hpp"
#include "kernels/selected.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/kernels/isa.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace {
namespace {

TEST(InstructionSets, ClusterWholeNumbersAlike) {
  // Products of small whole numbers are exact, in f32 and in two bf16, and so are distances.
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

// Words are indices: what lies above a code's bits must not reach what it indexes.
TEST(InstructionSets, ChooseByTheBitsOfCodesAlone) {
  const KvShape shape = testing::make_shape(4, 2, 64, Dtype::f16);
  for (const kernels::host::IsaLevel& level : kernels::host::isa_levels()) {
    if (!kernels::host::use_isa(level.name)) continue;
    for (const auto& [subspaces, bits] : {std::pair{1U, 4U},
                                          {1U, 6U},
                                          {1U, 7U},
                                          {2U, 4U},
                                          {2U, 5U},
                                          {2U, 6U},
                                          {4U, 4U},
                                          {4U, 7U}}) {
      const std::size_t candidates = std::clamp(1U << subspaces * bits, 64U, 4096U) + 77;
      testing::PqIndex index(shape, {.subspaces = subspaces, .bits = bits}, 64, candidates, 0);
      index.fill_codes();
      testing::Selected expected(shape, {0, candidates}, 50);
      testing::Selected selected = expected;
      const auto select = [&, m = subspaces, b = bits](testing::Selected& into) {
        testing::run(PqSelect{.common = into.common(GroupReduction::sum_softmax),
                              .pq = {.subspaces = m, .bits = b},
                              .index = index.view()});
      };
      select(expected);
      for (std::size_t head = 0; head < 2; ++head) {
        for (std::size_t j = 0; j < subspaces; ++j) {
          for (std::size_t p = 0; p < candidates; p += 3) {
            index.code(head, j, p) |= static_cast<std::byte>(0xff << bits);
          }
        }
      }
      select(selected);
      for (std::size_t head = 0; head < 2; ++head) {
        EXPECT_TRUE(std::ranges::equal(selected.ids(head), expected.ids(head)))
            << level.name << ", m " << subspaces << ", b " << bits << ", " << testing::seed_text();
      }
    }
  }
  ASSERT_TRUE(kernels::host::use_isa("auto").has_value());
}

// Products of channels are added one by one, on every instruction set.
TEST(InstructionSets, GiveLogitsOfChannelsTheSameBits) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const KvShape shape = testing::make_shape(5, 2, 48, dtype);
    testing::BlockStore store(shape, 32, 531);
    store.fill_normal(8);
    const ChannelShape channels{.count = 13};
    const testing::ChannelIndex index(store, channels, 64, {4, 531});
    std::vector<float> expected;
    for (const kernels::host::IsaLevel& level : kernels::host::isa_levels()) {
      if (!kernels::host::use_isa(level.name)) continue;
      std::vector<float> logits(5 * 576);
      testing::Selected selected(shape, {9, 531}, 20);
      kernels::host::write_channel_logits(
          {.common = selected.common({}), .channels = channels, .index = index.view()}, 1,
          logits.data(), 576);
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << level.name << ", " << testing::seed_text();
    }
  }
  ASSERT_TRUE(kernels::host::use_isa("auto").has_value());
}

struct Outcome {
  double inertia = 0;
  std::vector<float> centroids;
  std::vector<std::uint32_t> labels;
};

struct Problem {
  std::size_t rows = 5000;  // enough to be rounded, and no multiple of what is searched at once
  std::size_t dims = 0;
  std::size_t clusters = 0;
  kernels::Metric metric = kernels::Metric::l2;
  std::size_t iterations = 6;

  [[nodiscard]] std::vector<float> draw() const {
    std::vector<float> numbers(rows * dims);
    Rng rng(testing::seed(), {dims, clusters});
    for (float& x : numbers) x = testing::normal(rng);
    return numbers;
  }
};

Outcome cluster(const Problem& problem, std::span<const float> rows, std::string_view isa,
                std::size_t threads = 1) {
  EXPECT_TRUE(kernels::host::use_isa(isa).has_value());
  Outcome outcome{.centroids = std::vector<float>(problem.clusters * problem.dims),
                  .labels = std::vector<std::uint32_t>(problem.rows)};
  testing::PartThreads parallel(threads);
  outcome.inertia =
      kernels::host::kmeans(
          {.rows = rows.data(), .row_count = problem.rows, .dims = problem.dims},
          {.clusters = problem.clusters,
           .iterations = problem.iterations,
           .metric = problem.metric,
           .seed = 4},
          {.centroids = outcome.centroids.data(), .labels = outcome.labels.data()}, parallel)
          .value()
          .inertia;
  return outcome;
}

/// By level.
class RoundedSearches : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!kernels::host::use_isa(GetParam())) GTEST_SKIP() << "isa " << GetParam() << ": not here";
  }
  void TearDown() override { ASSERT_TRUE(kernels::host::use_isa("auto").has_value()); }
};

/// Compares by squared distance, or by -cosine times the row's length.
double distance(const Problem& problem, const float* row, const float* centroid) {
  double squares = 0;
  double product = 0;
  double length = 0;
  for (std::size_t i = 0; i < problem.dims; ++i) {
    squares += std::pow(double{row[i]} - double{centroid[i]}, 2);
    product += double{row[i]} * double{centroid[i]};
    length += std::pow(double{centroid[i]}, 2);
  }
  return problem.metric == kernels::Metric::l2 ? squares : -product / std::sqrt(length);
}

void expect_nearest(const Problem& problem, const std::vector<float>& rows,
                    const Outcome& outcome) {
  for (std::size_t r = 0; r < problem.rows; r += 7) {
    const float* const row = &rows[r * problem.dims];
    const auto to = [&](std::size_t c) {
      return distance(problem, row, &outcome.centroids[c * problem.dims]);
    };
    const double own = to(outcome.labels[r]);
    for (std::size_t c = 0; c < problem.clusters; ++c) ASSERT_LE(own, to(c) + 2e-4) << r;
  }
}

TEST_P(RoundedSearches, ClusterAsWellAndLabelExactly) {
  for (const kernels::Metric metric : {kernels::Metric::l2, kernels::Metric::cosine}) {
    for (const auto& [dims, clusters] :
         {std::pair{33U, 5U}, {32U, 5U}, {64U, 70U}, {96U, 128U}, {128U, 200U}}) {
      SCOPED_TRACE(std::to_string(dims) + " dims, " + std::to_string(clusters) + " clusters, " +
                   testing::seed_text());
      const Problem problem{.dims = dims, .clusters = clusters, .metric = metric};
      const std::vector<float> rows = problem.draw();
      const Outcome exact = cluster(problem, rows, "avx512");
      const Outcome rounded = cluster(problem, rows, GetParam());
      EXPECT_NEAR(rounded.inertia, exact.inertia, 0.005 * exact.inertia);
      EXPECT_NE(rounded.centroids, exact.centroids) << "nothing was rounded";
      expect_nearest(problem, rows, rounded);
    }
  }
}

// Keys of models have dimensions that lie far from zero: all on one side, some on the other, or on
// a circle, as those that RoPE turns. Rows are not rounded where that would cost too much.
TEST_P(RoundedSearches, ClusterAsWellWhereverRowsLie) {
  using Shift = void (*)(float* row, std::size_t r, float far);
  const std::pair<const char*, Shift> shifts[] = {
      {"three dimensions",
       [](float* row, std::size_t, float far) {
         for (const std::size_t i : {0U, 17U, 40U}) row[i] += far;
       }},
      {"all dimensions",
       [](float* row, std::size_t, float far) {
         for (std::size_t i = 0; i < 64; ++i) row[i] += far;
       }},
      {"a third on the other side",
       [](float* row, std::size_t r, float far) {
         for (const std::size_t i : {0U, 17U, 40U}) row[i] += r % 3 == 0 ? -far : far;
       }},
      {"a circle",
       [](float* row, std::size_t r, float far) {
         row[0] += far * std::cos(static_cast<float>(r));
         row[32] += far * std::sin(static_cast<float>(r));
       }},
  };
  for (const kernels::Metric metric : {kernels::Metric::l2, kernels::Metric::cosine}) {
    for (const auto& [name, shift] : shifts) {
      for (const float far : {20.0F, 50.0F, 200.0F}) {
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(far) +
                     (metric == kernels::Metric::l2 ? ", l2, " : ", cosine, ") +
                     testing::seed_text());
        const Problem problem{.dims = 64, .clusters = 64, .metric = metric};
        std::vector<float> rows = problem.draw();
        for (std::size_t r = 0; r < problem.rows; ++r) shift(&rows[r * 64], r, far);
        const Outcome exact = cluster(problem, rows, "avx512");
        const Outcome rounded = cluster(problem, rows, GetParam());
        EXPECT_LE(rounded.inertia, 1.005 * exact.inertia);
        if (shift == shifts[0].second) {
          EXPECT_NE(rounded.centroids, exact.centroids) << "nothing was rounded";
        }
      }
    }
  }
}

// Equal rows are equally far from all centroids, at any address and with any rounding.
TEST_P(RoundedSearches, LabelEqualRowsAlikeAndReadThemFromAnyAddress) {
  const Problem problem{.dims = 33, .clusters = 48};
  std::vector<float> rows = problem.draw();
  constexpr std::size_t different = 700;
  for (std::size_t i = different * problem.dims; i < rows.size(); ++i) {
    rows[i] = rows[i - different * problem.dims];
  }
  const Outcome aligned = cluster(problem, rows, GetParam());
  for (std::size_t r = different; r < problem.rows; ++r) {
    ASSERT_EQ(aligned.labels[r], aligned.labels[r - different]) << r << testing::seed_text();
  }
  expect_nearest(problem, rows, aligned);
  rows.insert(rows.begin(), 0.0F);
  const Outcome shifted = cluster(problem, std::span(rows).subspan(1), GetParam());
  EXPECT_EQ(shifted.centroids, aligned.centroids);
  EXPECT_EQ(shifted.labels, aligned.labels);
}

// At the sizes that `terrace bench kernels` has. Labels at such sizes are for the bench to check.
TEST_P(RoundedSearches, ClusterManyRowsAsWell) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "searches of millions of numbers take too long when they are watched";
#endif
  for (const Problem& problem :
       {Problem{.dims = 64, .clusters = 64},
        {.dims = 64, .clusters = 256},
        {.dims = 128, .clusters = 400, .metric = kernels::Metric::cosine}}) {
    Problem large = problem;
    large.rows = 32'768;
    large.iterations = 10;
    const std::vector<float> rows = large.draw();
    const double exact = cluster(large, rows, "avx512").inertia;
    const double ratio = cluster(large, rows, GetParam()).inertia / exact;
    EXPECT_NE(ratio, 1) << "nothing was rounded";
    EXPECT_NEAR(ratio, 1, 0.005) << large.clusters << " clusters, " << testing::seed_text();
  }
}

// The problems have the fewest rows that are rounded, and as many as a segment of wave's has. With
// so few rows, another step changes many labels, so only the inertia of several draws can be
// compared.
TEST_P(RoundedSearches, ClusterFewRowsAsWell) {
  for (const std::size_t rows : {512U, 2048U}) {
    SCOPED_TRACE(std::to_string(rows) + " rows, " + testing::seed_text());
    double exact = 0;
    double rounded = 0;
    for (std::size_t draw = 0; draw < 8; ++draw) {
      const Problem problem{.rows = rows, .dims = 64 + draw, .clusters = rows / 16};
      const std::vector<float> numbers = problem.draw();
      exact += cluster(problem, numbers, "avx512").inertia;
      const Outcome outcome = cluster(problem, numbers, GetParam());
      rounded += outcome.inertia;
      expect_nearest(problem, numbers, outcome);
    }
    EXPECT_NE(rounded, exact) << "nothing was rounded";
    EXPECT_NEAR(rounded, exact, 0.005 * exact);
  }
}

/// A clustering of up to 50 iterations that is cancelled after so many pieces.
struct CutClustering {
  CutClustering(const Problem& problem, const std::vector<float>& rows)
      : outcome{.centroids = std::vector<float>(problem.clusters * problem.dims),
                .labels = std::vector<std::uint32_t>(problem.rows)},
        work(kernels::host::KmeansInPieces::begin(
                 {.rows = rows.data(), .row_count = problem.rows, .dims = problem.dims},
                 {.clusters = problem.clusters,
                  .iterations = 50,
                  .seed = 4,
                  .cancelled = &cancelled},
                 {.centroids = outcome.centroids.data(), .labels = outcome.labels.data()})
                 .value()) {}

  void cut(std::size_t pieces) {
    for (std::size_t i = 0; i < pieces; ++i) ASSERT_FALSE(work.do_piece());
    cancelled = true;
  }

  std::atomic<bool> cancelled = false;
  Outcome outcome;
  kernels::host::KmeansInPieces work;
};

// If a wait for an index is cancelled, the labels must still fit the centroids.
TEST_P(RoundedSearches, LabelExactlyWhereverTheyAreCancelled) {
  const Problem problem{.dims = 64, .clusters = 70};
  const std::vector<float> rows = problem.draw();
  EXPECT_TRUE(kernels::host::use_isa(GetParam()).has_value());
  for (const std::size_t pieces : {0U, 3U, 11U, 24U, 40U}) {
    SCOPED_TRACE(std::to_string(pieces) + " pieces, " + testing::seed_text());
    CutClustering clustering(problem, rows);
    ASSERT_NO_FATAL_FAILURE(clustering.cut(pieces));
    Serial alone;
    clustering.work.finish(alone);
    EXPECT_LT(clustering.work.report()->iterations, 50U);
    expect_nearest(problem, rows, clustering.outcome);
  }
}

// A run with the number of iterations in a report must repeat the reported run.
TEST_P(RoundedSearches, AreCutShortAsIfFewerIterationsHadBeenAskedFor) {
  Problem problem{.dims = 64, .clusters = 70, .iterations = 50};
  const std::vector<float> rows = problem.draw();
  EXPECT_TRUE(kernels::host::use_isa(GetParam()).has_value());
  for (const std::size_t pieces : {0U, 3U, 11U, 24U, 40U}) {
    SCOPED_TRACE(std::to_string(pieces) + " pieces, " + testing::seed_text());
    CutClustering clustering(problem, rows);
    ASSERT_NO_FATAL_FAILURE(clustering.cut(pieces));
    std::size_t left = 1;
    while (!clustering.work.do_piece()) ++left;
    // The pieces left are those of assigning, of exact sums, of labelling once more, and of
    // inertia; means take two pieces, twice.
    EXPECT_LE(left, 4 * divide_up(problem.rows, std::size_t{1024}) + 4);
    problem.iterations = clustering.work.report()->iterations;
    EXPECT_LT(problem.iterations, 50U);
    EXPECT_TRUE(pieces > 0 || problem.iterations == 0);
    const Outcome asked_for = cluster(problem, rows, GetParam());
    EXPECT_EQ(clustering.outcome.centroids, asked_for.centroids);
    EXPECT_EQ(clustering.outcome.labels, asked_for.labels);
  }
}

TEST_P(RoundedSearches, DoNotDependOnThreads) {
  for (const std::size_t dims : {20U, 32U}) {
    const Problem problem{.dims = dims, .clusters = 37};
    const std::vector<float> rows = problem.draw();
    const Outcome expected = cluster(problem, rows, GetParam());
    const Outcome parallel = cluster(problem, rows, GetParam(), 3);
    EXPECT_EQ(parallel.centroids, expected.centroids) << dims;
    EXPECT_EQ(parallel.labels, expected.labels) << dims;
  }
}

TEST_P(RoundedSearches, TakeRowsThatBf16CannotHold) {
  for (const std::size_t dims : {8U, 32U}) {
    const Problem problem{.dims = dims, .clusters = 16};
    std::vector<float> rows = problem.draw();
    rows[0] = std::nanf("");
    rows[dims] = std::numeric_limits<float>::infinity();
    rows[2 * dims] = std::numeric_limits<float>::denorm_min();
    // The square of 1e18 is large, and finite.
    for (std::size_t i = 3 * dims; i < 4 * dims; ++i) rows[i] = 1e18F;
    const Outcome outcome = cluster(problem, rows, GetParam());
    EXPECT_EQ(outcome.labels[0], 0U) << dims;
    EXPECT_EQ(outcome.labels[1], 0U) << dims;
    for (const float x : outcome.centroids) EXPECT_TRUE(std::isfinite(x)) << dims;
  }
}

TEST_P(RoundedSearches, TakeAnyDimensions) {
  for (const std::size_t dims : {1U, 5U, 33U, 80U}) {
    SCOPED_TRACE(dims);
    const Problem problem{.dims = dims, .clusters = 20};
    const std::vector<float> rows = problem.draw();
    expect_nearest(problem, rows, cluster(problem, rows, GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RoundedSearches, ::testing::Values("avx512_bf16", "amx"));

}  // namespace
}  // namespace terrace
