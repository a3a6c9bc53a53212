// k-means: what it returns, its edges, and its limits.
#include "terrace/kernels/kmeans.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/guarded.hpp"
#include "kernels/part_threads.hpp"
#include "kernels/seed.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using kernels::KmeansOptions;
using kernels::KmeansReport;
using kernels::Metric;
using testing::Guarded;
using testing::PartThreads;

/// A problem of random rows, and what came out.
class Clustering {
 public:
  Clustering(std::size_t row_count, std::size_t dims, std::size_t clusters)
      : row_count_(row_count),
        dims_(dims),
        rows_(row_count * dims),
        centroids_(clusters * dims, std::nanf("")),
        labels_(row_count, 0xffffU) {
    Rng rng(testing::seed(), {row_count, dims});
    for (float& x : rows_) x = testing::normal(rng);
  }

  Result<KmeansReport> run(const KmeansOptions& options, Parallel& threads) {
    return kernels::host::kmeans(
        {.rows = rows_.data(), .row_count = row_count_, .dims = dims_}, options,
        {.centroids = centroids_.data(), .labels = labels_.data()}, threads);
  }

  std::size_t row_count_;
  std::size_t dims_;
  std::vector<float> rows_;
  Guarded<float> centroids_;
  Guarded<std::uint32_t> labels_;
};

TEST(Kmeans, FollowsTheReferenceIterationByIteration) {
  for (const Metric metric : {Metric::l2, Metric::cosine}) {
    for (const auto& [n, dims, clusters] :
         {std::tuple{40U, 2U, 5U}, {300U, 6U, 17U}, {300U, 33U, 16U}, {500U, 64U, 40U}}) {
      for (const std::size_t iterations : {0U, 1U, 3U}) {
        SCOPED_TRACE(std::to_string(n) + " rows, " + std::to_string(dims) + " dims, " +
                     std::to_string(clusters) + " clusters, " + std::to_string(iterations) +
                     " iterations, " + testing::seed_text());
        Clustering host(n, dims, clusters);
        Clustering reference(n, dims, clusters);
        std::vector<std::uint32_t> initial(clusters);
        for (std::uint32_t c = 0; c < clusters; ++c) initial[c] = c * 2;
        const KmeansOptions options{.clusters = clusters,
                                    .iterations = iterations,
                                    .metric = metric,
                                    .initial_rows = initial};
        Serial threads;
        const KmeansReport report = host.run(options, threads).value();
        const KmeansReport expected = kernels::reference::kmeans(
            {.rows = reference.rows_.data(), .row_count = n, .dims = dims}, options,
            {.centroids = reference.centroids_.data(), .labels = reference.labels_.data()});
        // Rounding may give a row that lies midway to the other side; few rows lie so.
        std::size_t different = 0;
        for (std::size_t i = 0; i < n; ++i) different += host.labels_[i] != reference.labels_[i];
        EXPECT_LE(different, n / 100);
        EXPECT_EQ(report.iterations, expected.iterations);
        EXPECT_NEAR(report.inertia, expected.inertia, 1e-3 * expected.inertia);
        EXPECT_TRUE(host.centroids_.intact() && host.labels_.intact());
      }
    }
  }
}

TEST(Kmeans, DoesNotDependOnThreads) {
  Clustering expected(5000, 20, 37);
  Serial serial;
  const KmeansOptions options{.clusters = 37, .iterations = 4, .seed = 3};
  const KmeansReport report = expected.run(options, serial).value();
  for (const std::size_t count : {1U, 2U, 4U}) {
    Clustering clustering(5000, 20, 37);
    PartThreads threads(count);
    EXPECT_EQ(clustering.run(options, threads)->inertia, report.inertia);
    EXPECT_TRUE(clustering.centroids_.same_bits(expected.centroids_)) << count << " threads";
    EXPECT_TRUE(clustering.labels_.same_bits(expected.labels_)) << count << " threads";
  }
}

TEST(Kmeans, GivesTheSameBitsInPiecesWhereverTheyAreLeft) {
  constexpr std::size_t rows = 9500;  // sums of three runs, the last of them shorter
  const KmeansOptions options{.clusters = 37, .iterations = 4, .seed = 3};
  Clustering expected(rows, 20, 37);
  Serial serial;
  const KmeansReport report = expected.run(options, serial).value();
  for (const std::size_t pieces : {0U, 1U, 13U, 14U, 27U, 1000U}) {
    Clustering clustering(rows, 20, 37);
    auto work = kernels::host::KmeansInPieces::begin(
        {.rows = clustering.rows_.data(), .row_count = rows, .dims = 20}, options,
        {.centroids = clustering.centroids_.data(), .labels = clustering.labels_.data()});
    for (std::size_t i = 0; i < pieces && !work->do_piece(); ++i) continue;
    PartThreads threads(3);
    work->finish(threads);
    EXPECT_EQ(work->report()->inertia, report.inertia) << pieces;
    EXPECT_TRUE(clustering.centroids_.same_bits(expected.centroids_)) << pieces;
    EXPECT_TRUE(clustering.labels_.same_bits(expected.labels_)) << pieces;
  }
}

TEST(Kmeans, MakesEveryDistinctRowACentroidWhenTheyAreFew) {
  for (const std::size_t distinct : {1U, 5U, 16U}) {
    Clustering clustering(1000, 3, 16);
    for (std::size_t i = 0; i < 3000; ++i) {
      clustering.rows_[i] = static_cast<float>(i / 3 * 7 % distinct + i % 3);
    }
    Serial threads;
    const auto report = clustering.run({.clusters = 16, .iterations = 5}, threads);
    EXPECT_TRUE(report->converged);
    EXPECT_EQ(report->inertia, 0.0);
    const std::set<std::uint32_t> used(clustering.labels_.span().begin(),
                                       clustering.labels_.span().end());
    EXPECT_EQ(used.size(), distinct);
    EXPECT_LT(*used.rbegin(), distinct) << "a centroid that repeats another is never a label";
  }
}

TEST(Kmeans, TakesFewerRowsThanClusters) {
  Clustering clustering(3, 5, 8);
  Serial threads;
  EXPECT_EQ(clustering.run({.clusters = 8, .iterations = 5}, threads)->inertia, 0.0);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(clustering.labels_[i], i);
  for (const float x : clustering.centroids_.span()) EXPECT_TRUE(std::isfinite(x));
}

TEST(Kmeans, LeavesRowsOutThatHaveNoDistances) {
  Clustering with(400, 7, 9);
  Clustering without(399, 7, 9);
  std::copy_n(with.rows_.begin(), 399 * 7, without.rows_.begin());
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 1e30F, -kernels::clustered_below}) {
    with.rows_[399 * 7 + 6] = odd;
    Serial threads;
    const KmeansOptions options{.clusters = 9, .iterations = 6, .seed = 2};
    EXPECT_EQ(with.run(options, threads)->inertia, without.run(options, threads)->inertia);
    EXPECT_TRUE(with.centroids_.same_bits(without.centroids_));
    EXPECT_EQ(with.labels_[399], 0U);
  }
}

TEST(Kmeans, GivesZerosWhenNoRowTakesPart) {
  Clustering clustering(10, 4, 3);
  std::ranges::fill(clustering.rows_, std::nanf(""));
  Serial threads;
  EXPECT_EQ(clustering.run({.clusters = 3, .iterations = 2}, threads)->inertia, 0.0);
  for (const float x : clustering.centroids_.span()) EXPECT_EQ(x, 0.0F);
  for (const std::uint32_t label : clustering.labels_.span()) EXPECT_EQ(label, 0U);
}

// Powers of two move no bit of a number's mantissa: so long as nothing is denormal all arithmetic
// is the same. The smallest f16 keys, which are denormal there, are normal numbers of f32.
TEST(Kmeans, ClustersKeysOfAnySizeAlike) {
  for (const Metric metric : {Metric::l2, Metric::cosine}) {
    for (const float factor : {0x1p-18F, 0x1p+52F}) {
      Clustering plain(3000, 37, 64);
      Clustering scaled(3000, 37, 64);
      for (float& x : scaled.rows_) x *= factor;
      Serial threads;
      const KmeansOptions options{.clusters = 64, .iterations = 5, .metric = metric, .seed = 4};
      const KmeansReport expected = plain.run(options, threads).value();
      const KmeansReport report = scaled.run(options, threads).value();
      EXPECT_TRUE(scaled.labels_.same_bits(plain.labels_)) << testing::seed_text();
      EXPECT_EQ(report.iterations, expected.iterations);
      const double scale = metric == Metric::l2 ? std::pow(double{factor}, 2) : 1;
      EXPECT_NEAR(report.inertia, scale * expected.inertia, 1e-9 * scale * expected.inertia);
    }
  }
}

TEST(Kmeans, TakesDenormalElementsForZeroAmongOthers) {
  Clustering zeros(3000, 37, 64);
  Clustering denormals(3000, 37, 64);
  for (std::size_t i = 0; i < zeros.rows_.size(); i += 3) {
    zeros.rows_[i] = 0;
    denormals.rows_[i] = std::copysign(0x1p-130F, denormals.rows_[i]);
  }
  Serial threads;
  const KmeansOptions options{.clusters = 64, .iterations = 5, .seed = 4};
  EXPECT_EQ(denormals.run(options, threads)->inertia, zeros.run(options, threads)->inertia);
  EXPECT_TRUE(denormals.labels_.same_bits(zeros.labels_)) << testing::seed_text();
}

// Their squares are zero, and so are all distances: any label is right, but the same one each time.
TEST(Kmeans, ClustersRowsOfDenormals) {
  for (const Metric metric : {Metric::l2, Metric::cosine}) {
    Clustering once(9000, 20, 37);
    for (float& x : once.rows_) x *= 0x1p-130F;
    Clustering again = once;
    Serial alone;
    PartThreads threads(2);
    const KmeansOptions options{.clusters = 37, .iterations = 5, .metric = metric, .seed = 4};
    EXPECT_TRUE(std::isfinite(once.run(options, alone)->inertia));
    ASSERT_TRUE(again.run(options, threads).has_value());
    EXPECT_TRUE(again.labels_.same_bits(once.labels_));
    EXPECT_TRUE(again.centroids_.same_bits(once.centroids_));
    for (const std::uint32_t label : once.labels_.span()) EXPECT_LT(label, 37U);
    for (const float x : once.centroids_.span()) EXPECT_LT(std::abs(x), 0x1p-120F);
  }
}

TEST(Kmeans, StartsNoIterationAfterTheDeadlineOrWhenCancelled) {
  ManualClock clock;
  clock.advance(std::chrono::seconds(5));
  Serial threads;
  Clustering late(500, 8, 10);
  const KmeansOptions options{.clusters = 10,
                              .iterations = 50,
                              .clock = &clock,
                              .deadline = TimePoint(std::chrono::seconds(5))};
  EXPECT_EQ(late.run(options, threads)->iterations, 0U);
  const std::atomic<bool> cancelled{true};
  Clustering stopped(500, 8, 10);
  EXPECT_EQ(
      stopped.run({.clusters = 10, .iterations = 50, .cancelled = &cancelled}, threads)->iterations,
      0U);
  EXPECT_TRUE(stopped.labels_.same_bits(late.labels_));
  for (const std::uint32_t label : late.labels_.span()) EXPECT_LT(label, 10U);
}

TEST(Kmeans, GivesTheSameBitsWithoutInertia) {
  Serial threads;
  Clustering measured(500, 8, 10);
  Clustering unmeasured(500, 8, 10);
  EXPECT_GT(measured.run({.clusters = 10, .iterations = 3}, threads)->inertia, 0);
  EXPECT_EQ(unmeasured.run({.clusters = 10, .iterations = 3, .measures_inertia = false}, threads)
                ->inertia,
            0);
  EXPECT_TRUE(unmeasured.centroids_.same_bits(measured.centroids_));
  EXPECT_TRUE(unmeasured.labels_.same_bits(measured.labels_));
}

TEST(Kmeans, StopsWhenLabelsRepeat) {
  Clustering clustering(200, 2, 3);
  Serial threads;
  const auto report = clustering.run({.clusters = 3, .iterations = 1000}, threads);
  EXPECT_TRUE(report->converged);
  EXPECT_LT(report->iterations, 1000U);
}

TEST(Kmeans, RefusesWhatItCannotCluster) {
  Clustering clustering(10, 4, 3);
  Serial threads;
  const std::uint32_t out_of_range[] = {0, 1, 10};
  const std::uint32_t too_few[] = {0, 1};
  for (const KmeansOptions& options :
       {KmeansOptions{.clusters = 0}, KmeansOptions{.clusters = 3, .initial_rows = out_of_range},
        KmeansOptions{.clusters = 3, .initial_rows = too_few}}) {
    EXPECT_EQ(clustering.run(options, threads).error().code, Errc::invalid_argument);
  }
  clustering.rows_[5] = std::nanf("");
  const std::uint32_t left_out[] = {0, 1, 2};
  EXPECT_EQ(clustering.run({.clusters = 3, .initial_rows = left_out}, threads).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(clustering.labels_[0], 0xffffU) << "nothing is written on an error";
}

TEST(Kmeans, RefusesNothingAndAbsurdSizes) {
  float row[2] = {1, 2};
  float centroid[2];
  std::uint32_t label = 7;
  Serial threads;
  const std::size_t absurd = std::size_t{1} << 40;
  const auto refuses = [&](const kernels::KmeansRows& rows, std::size_t clusters, float* centroids,
                           std::uint32_t* labels) {
    const auto report = kernels::host::kmeans(rows, {.clusters = clusters},
                                              {.centroids = centroids, .labels = labels}, threads);
    return !report && report.error().code == Errc::invalid_argument;
  };
  EXPECT_FALSE(refuses({.rows = row, .row_count = 1, .dims = 2}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = nullptr, .row_count = 1, .dims = 2}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 1, .dims = 2}, 1, nullptr, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 1, .dims = 2}, 1, centroid, nullptr));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 0, .dims = 2}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 1, .dims = 0}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = absurd, .dims = 2}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 1, .dims = absurd}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 1, .dims = 2}, absurd, centroid, &label));
  // Each of these sizes is possible alone, but their product is not.
  const std::size_t large = std::size_t{1} << 31;
  EXPECT_TRUE(refuses({.rows = row, .row_count = large, .dims = large}, 1, centroid, &label));
  EXPECT_TRUE(refuses({.rows = row, .row_count = 1, .dims = large}, large, centroid, &label));
  EXPECT_EQ(label, 0U);
}

TEST(Kmeans, RefusesMemoryThatOverlaps) {
  constexpr std::size_t rows = 4;
  constexpr std::size_t dims = 2;
  std::vector<float> memory(64, 1.0F);
  Serial threads;
  const auto refuses = [&](std::size_t centroids, std::size_t labels) {
    const auto report = kernels::host::kmeans(
        {.rows = &memory[16], .row_count = rows, .dims = dims}, {.clusters = 2},
        {.centroids = &memory[centroids],
         .labels = reinterpret_cast<std::uint32_t*>(&memory[labels])},
        threads);
    return !report && report.error().code == Errc::invalid_argument;
  };
  // Rows are floats [16, 24), centroids take 4 and labels 4.
  EXPECT_TRUE(refuses(16, 40)) << "centroids at the rows";
  EXPECT_TRUE(refuses(13, 40)) << "centroids reach into the rows";
  EXPECT_TRUE(refuses(23, 40));
  EXPECT_TRUE(refuses(40, 13)) << "labels reach into the rows";
  EXPECT_TRUE(refuses(40, 23));
  EXPECT_TRUE(refuses(40, 43)) << "labels at the last centroid";
  EXPECT_TRUE(refuses(43, 40));
  EXPECT_EQ(memory, std::vector<float>(64, 1.0F)) << "nothing is written on an error";
  EXPECT_FALSE(refuses(12, 24)) << "side by side is apart";
}

}  // namespace
}  // namespace terrace
