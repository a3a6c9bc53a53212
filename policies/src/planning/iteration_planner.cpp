// Source of the cost model: PQCache (arXiv 2407.12820), section on adaptive iterations; offload
// time, non-negative fits and the run-time correction are our own (docs/decisions/0006).
#include "terrace/policies/iteration_planner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace terrace::policies {
namespace {

constexpr std::size_t terms = 3;
using Row = std::array<double, terms + 1>;

/// Solves the normal equations over the coefficients `used`; the others are 0. Gaps count as shares
/// of their samples: else the longest time alone would decide.
std::array<double, terms> solve(std::span<const TimeSample> samples,
                                const std::array<bool, terms>& used, double scale) {
  std::array<Row, terms> a{};
  for (const TimeSample& sample : samples) {
    const double x = sample.tokens / scale;
    const double weight = sample.seconds > 0 ? 1 / (sample.seconds * sample.seconds) : 1;
    const std::array<double, terms> basis{used[0] ? 1.0 : 0.0, used[1] ? x : 0.0,
                                          used[2] ? x * x : 0.0};
    for (std::size_t i = 0; i < terms; ++i) {
      for (std::size_t j = 0; j < terms; ++j) a[i][j] += weight * basis[i] * basis[j];
      a[i][terms] += weight * basis[i] * sample.seconds;
    }
  }
  for (std::size_t i = 0; i < terms; ++i) {
    if (!used[i]) a[i][i] = 1;
  }
  for (std::size_t pivot = 0; pivot < terms; ++pivot) {
    for (std::size_t i = pivot + 1; i < terms; ++i) {
      if (std::abs(a[i][pivot]) > std::abs(a[pivot][pivot])) std::swap(a[i], a[pivot]);
    }
    if (std::abs(a[pivot][pivot]) < 1e-30) continue;
    for (std::size_t i = 0; i < terms; ++i) {
      if (i == pivot) continue;
      const double factor = a[i][pivot] / a[pivot][pivot];
      for (std::size_t j = pivot; j <= terms; ++j) a[i][j] -= factor * a[pivot][j];
    }
  }
  std::array<double, terms> c{};
  for (std::size_t i = 0; i < terms; ++i) {
    c[i] = std::abs(a[i][i]) < 1e-30 ? 0 : a[i][terms] / a[i][i] / std::pow(scale, i);
  }
  return c;
}

/// A tenth of the way from one factor to another.
double towards(double factor, double observed) { return factor + 0.1 * (observed - factor); }

}  // namespace

Result<Polynomial> fit_time(std::span<const TimeSample> samples, std::size_t degree) {
  if (degree >= terms || samples.size() <= degree) {
    return fail(Errc::invalid_argument, "{} samples are too few to fit degree {}", samples.size(),
                degree);
  }
  double largest = 1;
  for (const TimeSample& sample : samples) {
    if (!std::isfinite(sample.tokens) || !std::isfinite(sample.seconds)) {
      return fail(Errc::invalid_argument, "a time sample is not finite");
    }
    largest = std::max(largest, sample.tokens);
  }
  std::array<bool, terms> used{};
  for (std::size_t i = 0; i <= degree; ++i) used[i] = true;
  for (;;) {
    const std::array<double, terms> c = solve(samples, used, largest);
    const auto lowest = static_cast<std::size_t>(std::min_element(c.begin(), c.end()) - c.begin());
    if (c[lowest] >= 0) return Polynomial{c};
    used[lowest] = false;
  }
}

double residual(std::span<const TimeSample> samples, const Polynomial& fit) {
  double largest = 0;
  for (const TimeSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    largest = std::max(largest, std::abs(fit(sample.tokens) - sample.seconds) / sample.seconds);
  }
  return largest;
}

Status fit_kmeans(std::span<const KmeansSample> samples, CostModel& model) {
  // At each length a straight line over iterations; then its two numbers over length, squares
  // included: where clusters are as many as the tokens want, time grows with the square.
  std::vector<double> lengths;
  for (const KmeansSample& sample : samples) lengths.push_back(sample.tokens);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  std::vector<TimeSample> base;
  std::vector<TimeSample> slope;
  for (const double length : lengths) {
    std::vector<TimeSample> line;
    for (const KmeansSample& sample : samples) {
      if (sample.tokens == length) line.push_back({sample.iterations, sample.seconds});
    }
    TERRACE_ASSIGN(const Polynomial fit, fit_time(line, 1));
    base.push_back({length, fit.c[0]});
    slope.push_back({length, fit.c[1]});
  }
  const std::size_t degree = std::min<std::size_t>(2, lengths.size() - 1);
  TERRACE_ASSIGN(model.kmeans_base, fit_time(base, degree));
  TERRACE_ASSIGN(model.kmeans_iteration, fit_time(slope, degree));
  model.residuals.kmeans = 0;
  for (const KmeansSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    const double gap = std::abs(model.kmeans(sample.tokens, sample.iterations) - sample.seconds);
    model.residuals.kmeans = std::max(model.residuals.kmeans, gap / sample.seconds);
  }
  return {};
}

std::size_t IterationPlanner::plan(std::size_t tokens, double elapsed) const noexcept {
  const auto n = static_cast<double>(tokens);
  const double room = (model_.compute(n) * compute_factor_ - elapsed) * (1 - options_.margin);
  const double one = model_.kmeans_iteration(n) * clustering_factor_;
  const double fitting = (room - model_.kmeans_base(n) * clustering_factor_) / one;
  // A slope of zero means the samples saw no cost per iteration; the floor is the safe answer.
  if (!(one > 0) || !(fitting > static_cast<double>(options_.iterations_min))) {
    return options_.iterations_min;
  }
  return static_cast<std::size_t>(std::min(fitting, static_cast<double>(options_.iterations_max)));
}

void IterationPlanner::observe_clustering(std::size_t tokens, double iterations,
                                          double seconds) noexcept {
  const double predicted = model_.kmeans(static_cast<double>(tokens), iterations);
  if (!(predicted > 0) || !(seconds > 0)) return;
  const double observed = seconds / predicted;
  clustering_factor_ = std::max(observed, towards(clustering_factor_, observed));
}

void IterationPlanner::observe_compute(std::size_t tokens, double seconds) noexcept {
  const double predicted = model_.compute(static_cast<double>(tokens));
  if (!(predicted > 0) || !(seconds > 0)) return;
  const double observed = seconds / predicted;
  compute_factor_ = std::min(observed, towards(compute_factor_, observed));
}

}  // namespace terrace::policies
