#include <algorithm>
#include <cmath>
#include <limits>

#include "host/cluster_head.hpp"
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
  for (std::size_t q = 0; q < count_; ++q) start_query(q);
}

void MassTracker::start_query(std::size_t q) noexcept {
  const std::size_t dims = op_.common.shape.head_dim;
  const float* const query = op_.common.query + (head_.index() * head_.group() + first_ + q) * dims;
  double square = 0;
  for (std::size_t i = 0; i < dims; ++i) square += double{query[i]} * double{query[i]};
  QueryMass& mass = queries_[q];
  mass = {.norm = std::sqrt(square / static_cast<double>(dims)),
          .square = head_.square_of_query(first_ + q)};
  const auto steady = double{head_.scores(first_ + q)[head_.active_count()]};
  mass.base = steady;
  for (std::uint32_t i = 0; i < head_.active_count(); ++i) {
    mass.base = std::max(mass.base, log_mass_most(q, i));
  }
  mass.bounded = std::isfinite(mass.base);
  if (!mass.bounded) return;
  mass.steady = std::exp(steady - mass.base);
  for (std::uint32_t i = 0; i < head_.active_count(); ++i) {
    const LogMassBounds one = cluster_bounds(q, i);
    mass.rest_low += std::exp(one.low - mass.base);
    mass.rest_high += std::exp(one.high - mass.base);
    mass.bounded = mass.bounded && !std::isnan(one.high);
    mass.all += estimate(q, i);
  }
}

LogMassBounds MassTracker::cluster_bounds(std::size_t q, std::uint32_t i) const noexcept {
  std::size_t slot = 0;
  const ClusterPlane plane = head_.plane_of(i, slot);
  const std::uint32_t members = head_.members(i);
  return log_mass_bounds({.logit = double{head_.scores(first_ + q)[i]} -
                                   double{head_.log_members(i)} -
                                   double{head_.spread(i, queries_[q].square)},
                          .members = double(members),
                          .whole = members == plane.sizes[slot],
                          .spread = queries_[q].norm * double{plane.radius[slot]},
                          .rounding = queries_[q].norm * double{plane.rounding[slot]}});
}

double MassTracker::log_mass_most(std::size_t q, std::uint32_t i) const noexcept {
  std::size_t slot = 0;
  const ClusterPlane plane = head_.plane_of(i, slot);
  const float score = head_.scores(first_ + q)[i] - head_.spread(i, queries_[q].square);
  return double{score} +
         queries_[q].norm * (double{plane.radius[slot]} + 2 * double{plane.rounding[slot]});
}

double MassTracker::estimate(std::size_t q, std::uint32_t i) const noexcept {
  return std::exp(double{head_.scores(first_ + q)[i]} - queries_[q].base);
}

MassBounds MassTracker::bounds(const QueryMass& mass) noexcept {
  if (!mass.bounded) return {};
  // More chosen mass and less of the rest raise the share, and the other way round.
  const double least = mass.steady + mass.chosen_low;
  const double most = mass.steady + mass.chosen_high;
  const double low = least / (least + std::max(mass.rest_high, 0.0));
  const double high = most / (most + std::max(mass.rest_low, 0.0));
  if (!(low >= 0 && high <= 1)) return {};
  return {static_cast<float>(low), static_cast<float>(high)};
}

bool MassTracker::is_enough() const noexcept {
  if (!follows_ || op_.mass_wanted <= 0) return false;
  return std::all_of(queries_, queries_ + count_, [this](const QueryMass& mass) {
    if (op_.mass_stop == MassStop::certain) return double{bounds(mass).low} >= op_.mass_wanted;
    return mass.steady + mass.chosen >= op_.mass_wanted * (mass.steady + mass.all);
  });
}

void MassTracker::choose(std::uint32_t i, bool whole) noexcept {
  if (!follows_) return;
  for (std::size_t q = 0; q < count_; ++q) {
    QueryMass& mass = queries_[q];
    if (!mass.bounded) continue;
    const LogMassBounds one = cluster_bounds(q, i);
    mass.chosen += estimate(q, i);
    const double low = std::exp(one.low - mass.base);
    const double high = std::exp(one.high - mass.base);
    // Of a cluster that is cut nothing is certain on either side.
    mass.chosen_high += high;
    mass.rest_low -= low;
    if (!whole) continue;
    mass.chosen_low += low;
    mass.rest_high -= high;
  }
}

void MassTracker::write() const noexcept {
  if (op_.mass == nullptr) return;
  MassBounds* const out = op_.mass + head_.index() * head_.group() + first_;
  for (std::size_t q = 0; q < count_; ++q) out[q] = follows_ ? bounds(queries_[q]) : MassBounds{};
}

}  // namespace host
}  // namespace terrace::kernels
