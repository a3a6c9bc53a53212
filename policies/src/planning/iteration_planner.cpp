// Source of the cost model: PQCache (arXiv 2407.12820), section on adaptive iterations; offload
// time, non-negative fits and the run-time correction are our own (docs/decisions/0006).
#include "terrace/policies/iteration_planner.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace terrace::policies {
namespace {

/// Returns the coefficients of `terms` [times, coefficients], none below zero, whose gaps, as
/// shares of the times, have the least squares (with absolute gaps the longest time alone would
/// decide). Coefficients are few: every subset that may be non-zero is tried.
Eigen::VectorXd fit_shares(const Eigen::MatrixXd& terms, const Eigen::VectorXd& seconds) {
  Eigen::MatrixXd shares = terms.array().colwise() / seconds.array();
  // Columns of one size: beside tokens squared ones would lose their digits.
  const Eigen::VectorXd sizes = shares.colwise().norm().cwiseMax(1e-300);
  shares.array().rowwise() /= sizes.transpose().array();
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(shares.rows());
  Eigen::VectorXd best = Eigen::VectorXd::Zero(shares.cols());
  double least = std::numeric_limits<double>::infinity();
  for (unsigned chosen = 1; chosen < 1U << shares.cols(); ++chosen) {
    std::vector<Eigen::Index> used;
    for (Eigen::Index c = 0; c < shares.cols(); ++c) {
      if ((chosen >> c & 1U) != 0) used.push_back(c);
    }
    const Eigen::MatrixXd some = shares(Eigen::all, used);
    const Eigen::VectorXd found = some.colPivHouseholderQr().solve(ones);
    const double gap = (some * found - ones).squaredNorm();
    if (!(found.minCoeff() >= 0 && gap < least)) continue;
    least = gap;
    best.setZero();
    best(used) = found.array() / sizes(used).array();
  }
  return best;
}

Eigen::RowVector3d powers_of(double x) { return {1, x, x * x}; }

Status check_time(double tokens, double seconds) {
  if (tokens >= 0 && std::isfinite(tokens * tokens) && std::isfinite(seconds) && seconds > 0) {
    return {};
  }
  return fail(Errc::invalid_argument, "a time sample of {} tokens and {} s cannot be fitted",
              tokens, seconds);
}

double gap_of(double predicted, double seconds) { return std::abs(predicted - seconds) / seconds; }

/// A tenth of the way from one factor to another.
double towards(double factor, double observed) { return factor + 0.1 * (observed - factor); }

}  // namespace

Result<Polynomial> fit_time(std::span<const TimeSample> samples, std::size_t degree) {
  Polynomial fit;
  std::set<double> lengths;
  for (const TimeSample& sample : samples) lengths.insert(sample.tokens);
  if (degree >= fit.c.size() || lengths.size() <= degree) {
    return fail(Errc::invalid_argument, "samples of {} lengths are too few to fit degree {}",
                lengths.size(), degree);
  }
  const auto rows = static_cast<Eigen::Index>(samples.size());
  const auto powers = static_cast<Eigen::Index>(degree + 1);
  Eigen::MatrixXd terms(rows, powers);
  Eigen::VectorXd seconds(rows);
  for (Eigen::Index r = 0; const TimeSample& sample : samples) {
    TERRACE_TRY(check_time(sample.tokens, sample.seconds));
    terms.row(r) = powers_of(sample.tokens).head(powers);
    seconds[r++] = sample.seconds;
  }
  std::ranges::copy(fit_shares(terms, seconds), fit.c.begin());
  return fit;
}

double residual(std::span<const TimeSample> samples, const Polynomial& fit) {
  double largest = 0;
  for (const TimeSample& sample : samples) {
    largest = std::max(largest, gap_of(fit(sample.tokens), sample.seconds));
  }
  return largest;
}

Status fit_kmeans(std::span<const KmeansSample> samples, CostModel& model) {
  std::map<double, std::set<double>> iterations;  // by length
  for (const KmeansSample& sample : samples) {
    TERRACE_TRY(check_time(sample.tokens, sample.seconds));
    iterations[sample.tokens].insert(sample.iterations);
  }
  const bool enough =
      iterations.size() >= 2 && std::ranges::all_of(iterations, [](const auto& of_length) {
        return of_length.second.size() >= 2;
      });
  if (!enough) {
    return fail(Errc::invalid_argument,
                "{} samples are too few to fit: two iteration counts at each of two lengths",
                samples.size());
  }
  // Squares included: where clusters are as many as the tokens want, time grows with the square.
  const auto rows = static_cast<Eigen::Index>(samples.size());
  const Eigen::Index powers = std::min<Eigen::Index>(3, std::ssize(iterations));
  Eigen::MatrixXd terms(rows, 2 * powers);
  Eigen::VectorXd seconds(rows);
  for (Eigen::Index r = 0; const KmeansSample& sample : samples) {
    const Eigen::RowVectorXd base = powers_of(sample.tokens).head(powers);
    terms.row(r) << base, sample.iterations * base;
    seconds[r++] = sample.seconds;
  }
  const Eigen::VectorXd found = fit_shares(terms, seconds);
  model.kmeans_base = model.kmeans_iteration = {};
  std::copy_n(found.begin(), powers, model.kmeans_base.c.begin());
  std::copy_n(found.begin() + powers, powers, model.kmeans_iteration.c.begin());
  model.residuals.kmeans = 0;
  for (const KmeansSample& sample : samples) {
    model.residuals.kmeans =
        std::max(model.residuals.kmeans,
                 gap_of(model.kmeans(sample.tokens, sample.iterations), sample.seconds));
  }
  return {};
}

double CostModel::compute_behind(double before, double tokens) const noexcept {
  return before > 0 ? compute(before + tokens) - compute(before) + compute.c[0] : compute(tokens);
}

std::size_t IterationPlanner::plan(const HiddenClustering& layer, double elapsed) const noexcept {
  const double room = (compute_of(layer) * compute_factor_ - elapsed) * (1 - options_.margin);
  const auto rows = static_cast<double>(layer.rows);
  const double one = model_.kmeans_iteration(rows) * clustering_factor_;
  const double fitting = (room - model_.kmeans_base(rows) * clustering_factor_) / one;
  // A slope of zero means the samples saw no cost per iteration; the floor is the safe answer.
  if (!(one > 0) || !(fitting > static_cast<double>(options_.iterations_min))) {
    return options_.iterations_min;
  }
  return static_cast<std::size_t>(std::min(fitting, static_cast<double>(options_.iterations_max)));
}

void IterationPlanner::observe_clustering(std::size_t rows, double iterations,
                                          double seconds) noexcept {
  const double predicted = model_.kmeans(static_cast<double>(rows), iterations);
  if (!(predicted > 0) || !(seconds > 0)) return;
  const double observed = seconds / predicted;
  clustering_factor_ = std::max(observed, towards(clustering_factor_, observed));
}

void IterationPlanner::observe_compute(const HiddenClustering& layer, double seconds) noexcept {
  const double predicted = compute_of(layer);
  if (!(predicted > 0) || !(seconds > 0)) return;
  const double observed = seconds / predicted;
  compute_factor_ = std::min(observed, towards(compute_factor_, observed));
}

double IterationPlanner::compute_of(const HiddenClustering& layer) const noexcept {
  return model_.compute_behind(static_cast<double>(layer.prompt.begin),
                               static_cast<double>(layer.prompt.size()));
}

}  // namespace terrace::policies
