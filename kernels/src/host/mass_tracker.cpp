#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "host/cluster_head.hpp"
#include "host/mass_sums.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::kernels {

LogMassBounds log_mass_bounds(const ClusterMass& cluster) noexcept {
  const double middle = cluster.logit + std::log(cluster.members);
  if (!cluster.whole) {
    return {middle - cluster.spread, middle + cluster.spread};
  }
  const double spread = cluster.spread + cluster.rounding;
  const double log_cosh = spread + std::log1p(std::exp(-2 * spread)) - std::log(2.0);
  return {middle - cluster.rounding, middle + cluster.rounding + log_cosh};
}

namespace host {

MassTracker::MassTracker(const ClusterSelect& op, const ClusterHead& head, std::size_t first,
                         std::size_t count) noexcept
    : op_(op),
      head_(head),
      first_(first),
      count_(count),
      follows_((op.mass != nullptr || op.mass_wanted > 0) && op.clusters.estimates &&
               op.resident.blocks != nullptr && count <= group_max &&
               op.common.candidates.begin == op.sinks.end &&
               op.common.candidates.end == op.window.begin) {
  if (!follows_) return;
  for (std::size_t q = 0; q < count_; ++q) measure_query(q);
  add_clusters();
  for (std::size_t q = 0; q < count_; ++q) finish_query(q);
}

void MassTracker::measure_query(std::size_t q) noexcept {
  const std::size_t dims = op_.common.shape.head_dim;
  const float* const query = op_.common.query + (head_.index() * head_.group() + first_ + q) * dims;
  double square = 0;
  for (std::size_t i = 0; i < dims; ++i) square += double{query[i]} * double{query[i]};
  queries_[q] = {.norm = std::sqrt(square / static_cast<double>(dims)),
                 .square = head_.square_of_query(first_ + q),
                 .rest = {.base = steady_logit(q)},
                 .estimate = {.base = steady_logit(q)}};
}

void MassTracker::add_clusters() noexcept {
  MassTerms terms{};  // places behind the last cluster hold numbers, too
  std::array<float, MassTerms::size_max> scores{};
  for (std::size_t begin = 0; begin < head_.active_count(); begin += MassTerms::size_max) {
    terms.count = std::min(MassTerms::size_max, head_.active_count() - begin);
    for (std::size_t i = 0; i < terms.count; ++i) {
      const auto cluster = static_cast<std::uint32_t>(begin + i);
      std::size_t slot = 0;
      const ClusterPlane& plane = head_.plane_of(cluster, slot);
      terms.radius[i] = plane.radius[slot];
      terms.rounding[i] = plane.rounding[slot];
      terms.variance[i] = op_.spreads ? plane.variance[slot] : 0.0F;
      terms.whole[i] = head_.members(cluster) == plane.sizes[slot] ? 1.0F : 0.0F;
    }
    for (std::size_t q = 0; q < count_; ++q) {
      const MassQuery query{.norm = static_cast<float>(queries_[q].norm),
                            .square = queries_[q].square,
                            .spread_max = ClusterHead::spread_max,
                            .scores = scores.data()};
      for (std::size_t i = 0; i < terms.count; ++i) {
        scores[i] = head_.scores(first_ + q)[begin + i] + head_.log_members(begin + i);
      }
      add_mass(terms, query, queries_[q].rest);
      if (wants_estimate()) add_logits(query.scores, terms.count, queries_[q].estimate);
    }
  }
}

void MassTracker::finish_query(std::size_t q) noexcept {
  QueryMass& mass = queries_[q];
  mass.steady_estimate = std::exp(steady_logit(q) - mass.estimate.base);
  mass.bounded = std::isfinite(mass.rest.base) && !std::isnan(mass.rest.high);
  if (!mass.bounded) return;
  mass.steady = std::exp(steady_logit(q) - mass.rest.base);
  // Exponents were rounded to f32: bounds stay certain if they give way by as much.
  const double rounding = 1e-6 * (8 + std::fabs(mass.rest.base));
  mass.rest.low *= 1 - rounding;
  mass.rest.high *= 1 + rounding;
}

double MassTracker::steady_logit(std::size_t q) const noexcept {
  return double{head_.scores(first_ + q)[head_.active_count()]};
}

LogMassBounds MassTracker::cluster_bounds(std::size_t q, std::uint32_t i) const noexcept {
  std::size_t slot = 0;
  const ClusterPlane& plane = head_.plane_of(i, slot);
  const std::uint32_t members = head_.members(i);
  return log_mass_bounds(
      {.logit = double{head_.scores(first_ + q)[i]} - double{head_.spread(i, queries_[q].square)},
       .members = double(members),
       .whole = members == plane.sizes[slot],
       .spread = queries_[q].norm * double{plane.radius[slot]},
       .rounding = queries_[q].norm * double{plane.rounding[slot]}});
}

double MassTracker::estimate(std::size_t q, std::uint32_t i) const noexcept {
  const double score = double{head_.scores(first_ + q)[i]} + double{head_.log_members(i)};
  return std::exp(score - queries_[q].estimate.base);
}

MassBounds MassTracker::bounds(const QueryMass& mass) noexcept {
  if (!mass.bounded) return {};
  // More chosen mass and less of the rest raise the share, and the other way round.
  const double least = mass.steady + mass.chosen_low;
  const double most = mass.steady + mass.chosen_high;
  const double low = least / (least + std::max(mass.rest.high, 0.0));
  const double high = most / (most + std::max(mass.rest.low, 0.0));
  if (!(low >= 0 && high <= 1)) return {};
  return {static_cast<float>(low), static_cast<float>(high)};
}

bool MassTracker::is_enough() const noexcept {
  if (!follows_ || op_.mass_wanted <= 0) return false;
  return std::all_of(queries_, queries_ + count_,
                     [this](const QueryMass& mass) { return has_enough(mass); });
}

bool MassTracker::has_enough(const QueryMass& mass) const noexcept {
  if (!wants_estimate()) return double{bounds(mass).low} >= op_.mass_wanted;
  // Of what cannot be estimated there is never enough; sums that are not numbers compare as false.
  if (!std::isfinite(mass.estimate.base)) return false;
  const double all = mass.steady_estimate + mass.estimate.sum;
  return mass.steady_estimate + mass.chosen_estimate >= op_.mass_wanted * all;
}

void MassTracker::choose(std::uint32_t i, bool whole) noexcept {
  if (!follows_) return;
  for (std::size_t q = 0; q < count_; ++q) {
    QueryMass& mass = queries_[q];
    if (wants_estimate()) mass.chosen_estimate += estimate(q, i);
    if (!mass.bounded) continue;
    const LogMassBounds one = cluster_bounds(q, i);
    const double low = std::exp(one.low - mass.rest.base);
    const double high = std::exp(one.high - mass.rest.base);
    // Of a cluster that is cut nothing is certain on either side.
    mass.chosen_high += high;
    mass.rest.low -= low;
    if (!whole) continue;
    mass.chosen_low += low;
    mass.rest.high -= high;
  }
}

void MassTracker::write() const noexcept {
  if (op_.mass == nullptr) return;
  MassBounds* const out = op_.mass + head_.index() * head_.group() + first_;
  for (std::size_t q = 0; q < count_; ++q) out[q] = follows_ ? bounds(queries_[q]) : MassBounds{};
}

}  // namespace host
}  // namespace terrace::kernels
