#include <algorithm>
#include <array>
#include <cmath>

#include "host/cluster_head.hpp"
#include "host/mass_sums.hpp"

namespace terrace::kernels::host {

MassTracker::MassTracker(const ClusterSelect& op, const ClusterHead& head, std::size_t first,
                         std::size_t count) noexcept
    : op_(op),
      head_(head),
      first_(first),
      count_(count),
      follows_(op.mass_wanted > 0 && op.resident.blocks != nullptr && count <= group_max &&
               op.common.candidates.begin == op.sinks.end &&
               op.common.candidates.end == op.window.begin) {
  for (std::size_t q = 0; follows_ && q < count_; ++q) {
    queries_[q].clusters.base = steady_logit(q);
    add_clusters(q);
    queries_[q].steady = std::exp(steady_logit(q) - queries_[q].clusters.base);
  }
}

void MassTracker::add_clusters(std::size_t q) noexcept {
  std::array<float, mass_logits_max> logits{};  // places after the last cluster can be read
  for (std::size_t begin = 0; begin < head_.active_count(); begin += logits.size()) {
    const std::size_t count = std::min(logits.size(), head_.active_count() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      logits[i] = head_.scores(first_ + q)[begin + i] + head_.log_members(begin + i);
    }
    add_logits(logits.data(), count, queries_[q].clusters);
  }
}

double MassTracker::steady_logit(std::size_t q) const noexcept {
  return double{head_.scores(first_ + q)[head_.active_count()]};
}

double MassTracker::estimate(std::size_t q, std::uint32_t i) const noexcept {
  const double score = double{head_.scores(first_ + q)[i]} + double{head_.log_members(i)};
  return std::exp(score - queries_[q].clusters.base);
}

bool MassTracker::is_enough() const noexcept {
  return follows_ && std::all_of(queries_, queries_ + count_,
                                 [this](const QueryMass& mass) { return has_enough(mass); });
}

bool MassTracker::has_enough(const QueryMass& mass) const noexcept {
  // A mass that cannot be estimated is never enough; sums that are not numbers compare as false.
  if (!std::isfinite(mass.clusters.base)) return false;
  const double all = mass.steady + mass.clusters.sum;
  return mass.steady + mass.chosen >= op_.mass_wanted * all;
}

void MassTracker::choose(std::uint32_t i) noexcept {
  for (std::size_t q = 0; follows_ && q < count_; ++q) queries_[q].chosen += estimate(q, i);
}

}  // namespace terrace::kernels::host
