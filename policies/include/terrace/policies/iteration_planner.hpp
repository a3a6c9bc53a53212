// How many k-means iterations a layer can afford so that clustering ends before the compute that
// hides it.
//
//   T_compute(n) = a2 n^2 + a1 n + a0     seconds one layer's prefill computes
//   T_offload(n) = o1 n + o0              seconds its rows take to reach the host
//   T_kmeans(n, i) = c2 n^2 + c1 n + c0 + i (e2 n^2 + e1 n + e0)
//
// The coefficients are fitted to times measured on the machine; at run time the planner scales
// T_kmeans and T_compute by what it observes.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

struct TimeSample {
  double tokens = 0;
  double seconds = 0;
};

struct KmeansSample {
  double tokens = 0;
  double iterations = 0;
  double seconds = 0;
};

/// c[0] + c[1] x + c[2] x^2.
struct Polynomial {
  std::array<double, 3> c{};
  [[nodiscard]] double operator()(double x) const noexcept { return c[0] + x * (c[1] + x * c[2]); }
};

/// Least squares of relative gaps, with coefficients that are not negative: time never falls with
/// work.
/// Errors: invalid_argument for fewer lengths than coefficients, or a time that is not above zero.
Result<Polynomial> fit_time(std::span<const TimeSample> samples, std::size_t degree);

/// How far a fit is from its samples: the largest gap, as a share of the sample.
struct Residuals {
  double compute = 0;
  double offload = 0;
  double kmeans = 0;
};

/// Returns the largest gap between a sample and the fit, as a share of the sample.
double residual(std::span<const TimeSample> samples, const Polynomial& fit);

struct CostModel {
  Polynomial compute = {};
  Polynomial offload = {};
  Polynomial kmeans_base = {};
  Polynomial kmeans_iteration = {};
  Residuals residuals = {};

  /// Returns the seconds that a layer computes for `tokens` tokens of a prompt after its first
  /// `before` tokens.
  [[nodiscard]] double compute_behind(double before, double tokens) const noexcept;

  [[nodiscard]] double kmeans(double rows, double iterations) const noexcept {
    return kmeans_base(rows) + iterations * kmeans_iteration(rows);
  }
};

/// Fits T_kmeans, and its residual, from samples with at least two different iteration counts at
/// each of two lengths, all at once and as fit_time() does; from three lengths on with squares of
/// the length.
/// Errors: invalid_argument for fewer, or a time that is not above zero.
Status fit_kmeans(std::span<const KmeansSample> samples, CostModel& model);

struct PlannerOptions {
  std::size_t iterations_min = 3;
  std::size_t iterations_max = 100;
  double margin = 0.1;  ///< share of the time that is left free, for what varies from run to run
};

/// The clustering of a layer and the compute that hides it.
struct HiddenClustering {
  std::size_t rows = 0;
  TokenRange prompt{};  ///< positions that are computed; what lies before them only attended to
};

/// Chooses iterations layer by layer and corrects itself by what layers were observed to take.
///
/// The planner keeps a factor on T_kmeans and a factor on T_compute. A longer time counts at once,
/// a shorter one by a tenth of the difference a layer, so that a single fast layer does not undo a
/// slow machine and plans do not swing. Threads: one at a time.
class IterationPlanner {
 public:
  IterationPlanner(const CostModel& model, const PlannerOptions& options)
      : model_(model), options_(options) {}

  /// Returns the most iterations, inside the limits, after which clustering ends before the next
  /// layer's compute, if it starts `elapsed` seconds after that compute.
  [[nodiscard]] std::size_t plan(const HiddenClustering& layer, double elapsed) const noexcept;

  /// Returns the iterations for a whole prompt whose clustering starts as soon as its rows have
  /// reached the host.
  [[nodiscard]] std::size_t plan(std::size_t tokens) const noexcept {
    return plan({.rows = tokens, .prompt = {0, tokens}},
                model_.offload(static_cast<double>(tokens)));
  }

  /// Notes how long clustering `rows` rows with `iterations` iterations took.
  void observe_clustering(std::size_t rows, double iterations, double seconds) noexcept;

  /// Notes how long the compute took that hides a layer's clustering.
  void observe_compute(const HiddenClustering& layer, double seconds) noexcept;

  [[nodiscard]] const CostModel& model() const noexcept { return model_; }

 private:
  [[nodiscard]] double compute_of(const HiddenClustering& layer) const noexcept;

  CostModel model_;
  PlannerOptions options_;
  double clustering_factor_ = 1;
  double compute_factor_ = 1;
};

}  // namespace terrace::policies
