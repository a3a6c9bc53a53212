// Lloyd's invariants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/finds_fault.hpp"
#include "kernels/seed.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace {
namespace {

using kernels::KmeansOptions;
using kernels::KmeansReport;

constexpr std::size_t row_count = 3000;
constexpr std::size_t dims = 12;
constexpr std::size_t clusters = 40;

struct Outcome {
  KmeansReport report;
  std::vector<float> centroids = std::vector<float>(clusters * dims);
  std::vector<std::uint32_t> labels = std::vector<std::uint32_t>(row_count);
};

class Lloyd : public ::testing::Test {
 protected:
  Lloyd() : rows_(row_count * dims) {
    Rng rng(testing::seed(), {41});
    for (float& x : rows_) x = testing::normal(rng);
  }

  Outcome run(const KmeansOptions& options) {
    Outcome outcome;
    Serial threads;
    outcome.report =
        kernels::host::kmeans(
            {.rows = rows_.data(), .row_count = row_count, .dims = dims}, options,
            {.centroids = outcome.centroids.data(), .labels = outcome.labels.data()}, threads)
            .value();
    return outcome;
  }

  double distance(const Outcome& outcome, std::size_t row, std::size_t c) const {
    double sum = 0;
    for (std::size_t i = 0; i < dims; ++i) {
      const double difference =
          double{rows_[row * dims + i]} - double{outcome.centroids[c * dims + i]};
      sum += difference * difference;
    }
    return sum;
  }

  void expect_nearest_labels(const Outcome& outcome) const {
    double inertia = 0;
    for (std::size_t row = 0; row < row_count; ++row) {
      const double own = distance(outcome, row, outcome.labels[row]);
      inertia += own;
      for (std::size_t c = 0; c < clusters; ++c) {
        // Compared are f32 sums of size |x|^2 + |c|^2 < 100.
        EXPECT_LE(own, distance(outcome, row, c) + 1e-4);
      }
    }
    EXPECT_NEAR(outcome.report.inertia, inertia, 1e-5 * inertia);
  }

  void expect_means_of_members(const Outcome& outcome) const {
    std::vector<double> sums(clusters * dims);
    std::vector<double> counts(clusters);
    for (std::size_t row = 0; row < row_count; ++row) {
      counts[outcome.labels[row]] += 1;
      for (std::size_t i = 0; i < dims; ++i) {
        sums[outcome.labels[row] * dims + i] += double{rows_[row * dims + i]};
      }
    }
    for (std::size_t i = 0; i < clusters * dims; ++i) {
      EXPECT_NEAR(double{outcome.centroids[i]}, sums[i] / counts[i / dims], 1e-5);
    }
  }

  std::vector<float> rows_;
};

TEST_F(Lloyd, NeverRaisesTheInertia) {
  double before = HUGE_VAL;
  for (std::size_t iterations = 0; iterations < 15; ++iterations) {
    const double inertia =
        run({.clusters = clusters, .iterations = iterations, .seed = 5}).report.inertia;
    EXPECT_LE(inertia, before * (1 + 1e-6)) << testing::seed_text();
    before = inertia;
  }
}

TEST_F(Lloyd, NeverRaisesTheInertiaWhenClustersGoEmpty) {
  // Many rows equal, so that initial centroids coincide and all but the lowest of them are empty.
  for (std::size_t i = 0; i < row_count * dims * 9 / 10; ++i) rows_[i] = 0.5F;
  const double before = run({.clusters = clusters, .iterations = 0, .seed = 5}).report.inertia;
  const Outcome after = run({.clusters = clusters, .iterations = 1, .seed = 5});
  EXPECT_LT(after.report.inertia, before) << testing::seed_text();
  std::vector<std::uint32_t> used = after.labels;
  std::ranges::sort(used);
  used.erase(std::unique(used.begin(), used.end()), used.end());
  EXPECT_EQ(used.size(), clusters) << testing::seed_text();
}

TEST_F(Lloyd, LabelsRowsWithTheirNearestCentroid) {
  expect_nearest_labels(run({.clusters = clusters, .iterations = 6, .seed = 5}));
}

TEST_F(Lloyd, MakesCentroidsTheMeansOfTheirMembers) {
  // Converged: then the members of the last update are those that labels name.
  const Outcome outcome = run({.clusters = clusters, .iterations = 1000, .seed = 5});
  ASSERT_TRUE(outcome.report.converged);
  expect_means_of_members(outcome);
}

TEST_F(Lloyd, FindsAWrongLabelAndAWrongMean) {
  const Outcome right = run({.clusters = clusters, .iterations = 1000, .seed = 5});
  Outcome label = right;
  label.labels[1234] = label.labels[1234] == 0 ? 1 : 0;
  EXPECT_TRUE(testing::finds_fault([&] { expect_nearest_labels(label); })) << testing::seed_text();
  EXPECT_TRUE(testing::finds_fault([&] { expect_means_of_members(label); }));
  Outcome mean = right;
  mean.centroids[7 * dims + 3] += 1e-4F;
  EXPECT_TRUE(testing::finds_fault([&] { expect_means_of_members(mean); }));
  Outcome report = right;
  report.report.inertia *= 1 + 1e-4;
  EXPECT_TRUE(testing::finds_fault([&] { expect_nearest_labels(report); }));
}

TEST_F(Lloyd, ComparesSeedsByDirectionAloneUnderTheCosine) {
  std::vector<std::uint32_t> initial(clusters);
  std::iota(initial.begin(), initial.end(), 100U);
  const KmeansOptions options{.clusters = clusters,
                              .iterations = 0,
                              .metric = kernels::Metric::cosine,
                              .initial_rows = initial};
  const Outcome expected = run(options);
  // A power of two above 100 changes the length and rounds nothing.
  for (std::size_t i = 0; i < dims; ++i) rows_[107 * dims + i] *= 128;
  EXPECT_EQ(run(options).labels, expected.labels) << testing::seed_text();
  EXPECT_GT(std::ranges::count(expected.labels, 7U), 1);
}

TEST_F(Lloyd, CommutesWithPermutingRows) {
  std::vector<std::uint32_t> initial(clusters);
  std::iota(initial.begin(), initial.end(), 100U);
  const Outcome straight = run({.clusters = clusters, .iterations = 3, .initial_rows = initial});
  std::vector<std::uint32_t> order(row_count);
  std::iota(order.begin(), order.end(), 0U);
  Rng rng(testing::seed(), {42});
  std::ranges::shuffle(order, rng);
  const std::vector<float> rows = rows_;
  std::vector<std::uint32_t> place(row_count);
  for (std::uint32_t i = 0; i < row_count; ++i) {
    place[order[i]] = i;
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(order[i] * dims), dims,
                rows_.begin() + static_cast<std::ptrdiff_t>(i * dims));
  }
  for (std::uint32_t& row : initial) row = place[row];
  const Outcome permuted = run({.clusters = clusters, .iterations = 3, .initial_rows = initial});
  // Sums have another order, so that a row midway between two centroids may change sides.
  std::size_t different = 0;
  for (std::size_t i = 0; i < row_count; ++i) {
    different += permuted.labels[i] != straight.labels[order[i]];
  }
  EXPECT_LE(different, row_count / 300) << testing::seed_text();
  EXPECT_NEAR(permuted.report.inertia, straight.report.inertia, 1e-4 * straight.report.inertia);
}

}  // namespace
}  // namespace terrace
