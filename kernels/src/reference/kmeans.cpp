#include <algorithm>
#include <cmath>
#include <vector>

#include "terrace/kernels/reference.hpp"

namespace terrace::kernels::reference {
namespace {

class NaiveLloyd {
 public:
  NaiveLloyd(const KmeansRows& input, const KmeansOptions& options)
      : input_(input),
        metric_(options.metric),
        clusters_(options.clusters),
        centroids_(options.clusters * input.dims),
        labels_(input.row_count) {
    for (std::size_t c = 0; c < clusters_; ++c) {
      for (std::size_t i = 0; i < input.dims; ++i) {
        centroids_[c * input.dims + i] = value(options.initial_rows[c], i);
      }
    }
  }

  bool assign() {
    bool changed = false;
    for (std::size_t row = 0; row < input_.row_count; ++row) {
      std::uint32_t best = 0;
      for (std::uint32_t c = 1; c < clusters_; ++c) {
        if (distance(row, c) < distance(row, best)) best = c;
      }
      changed |= labels_[row] != best;
      labels_[row] = best;
    }
    return changed;
  }

  void update() {
    for (std::uint32_t c = 0; c < clusters_; ++c) {
      if (members(c) == 0) give_farthest_row(c);
    }
    std::vector<double> sums(centroids_.size());
    for (std::size_t row = 0; row < input_.row_count; ++row) {
      for (std::size_t i = 0; i < input_.dims; ++i) {
        sums[labels_[row] * input_.dims + i] += value(row, i);
      }
    }
    for (std::size_t c = 0; c < clusters_; ++c) {
      const std::size_t count = members(static_cast<std::uint32_t>(c));
      for (std::size_t i = 0; count > 0 && i < input_.dims; ++i) {
        centroids_[c * input_.dims + i] = sums[c * input_.dims + i] / static_cast<double>(count);
      }
    }
  }

  [[nodiscard]] double inertia() const {
    double sum = 0;
    for (std::size_t row = 0; row < input_.row_count; ++row) sum += distance(row, labels_[row]);
    return sum;
  }

  void write(const KmeansOutput& output) const {
    std::ranges::copy(labels_, output.labels);
    std::ranges::transform(centroids_, output.centroids,
                           [](double x) { return static_cast<float>(x); });
  }

 private:
  [[nodiscard]] double value(std::size_t row, std::size_t i) const {
    return double{input_.rows[row * input_.dims + i]};
  }

  [[nodiscard]] double distance(std::size_t row, std::size_t c) const {
    double difference = 0;
    double product = 0;
    double row_square = 0;
    double centroid_square = 0;
    for (std::size_t i = 0; i < input_.dims; ++i) {
      const double x = value(row, i);
      const double m = centroids_[c * input_.dims + i];
      difference += (x - m) * (x - m);
      product += x * m;
      row_square += x * x;
      centroid_square += m * m;
    }
    if (metric_ == Metric::l2) return difference;
    const double norms = std::sqrt(row_square) * std::sqrt(centroid_square);
    return norms > 0 ? 1 - product / norms : 1;
  }

  [[nodiscard]] std::size_t members(std::uint32_t c) const {
    return static_cast<std::size_t>(std::ranges::count(labels_, c));
  }

  void give_farthest_row(std::uint32_t cluster) {
    std::size_t best = input_.row_count;
    double best_distance = 0;
    for (std::size_t row = 0; row < input_.row_count; ++row) {
      if (members(labels_[row]) < 2 || !(distance(row, labels_[row]) > best_distance)) continue;
      best = row;
      best_distance = distance(row, labels_[row]);
    }
    if (best == input_.row_count) return;
    labels_[best] = cluster;
    // The row is its own centroid from now on, so that it is not the farthest row for the next
    // empty cluster.
    for (std::size_t i = 0; i < input_.dims; ++i) {
      centroids_[cluster * input_.dims + i] = value(best, i);
    }
  }

  const KmeansRows& input_;
  Metric metric_;
  std::size_t clusters_;
  std::vector<double> centroids_;
  std::vector<std::uint32_t> labels_;
};

}  // namespace

KmeansReport kmeans(const KmeansRows& input, const KmeansOptions& options,
                    const KmeansOutput& output) {
  NaiveLloyd lloyd(input, options);
  KmeansReport report;
  lloyd.assign();
  while (!report.converged && report.iterations < options.iterations) {
    lloyd.update();
    ++report.iterations;
    report.converged = !lloyd.assign();
  }
  if (options.measures_inertia) report.inertia = lloyd.inertia();
  lloyd.write(output);
  return report;
}

}  // namespace terrace::kernels::reference
