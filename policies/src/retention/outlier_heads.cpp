#include "terrace/policies/outlier_heads.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "soft_matching.hpp"

namespace terrace::policies {
namespace {

/// Returns the share of numbers below `bound`; they fall.
double share_below(std::span<const float> falling, double bound) {
  const auto first = std::ranges::partition_point(
      falling, [&](float number) { return static_cast<double>(number) >= bound; });
  return static_cast<double>(falling.end() - first) / static_cast<double>(falling.size());
}

}  // namespace

Result<OutlierHeads> OutlierHeads::create(std::size_t layers, std::size_t kv_heads,
                                          std::vector<KvHead> heads) {
  std::ranges::sort(heads);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const KvHead& head = heads[i];
    if (index(head.layer) >= layers || index(head.head) >= kv_heads) {
      return fail(Errc::invalid_argument,
                  "outlier head {} of layer {}: the model has {} layers of {} KV heads",
                  index(head.head), index(head.layer), layers, kv_heads);
    }
    if (i > 0 && head == heads[i - 1]) {
      return fail(Errc::invalid_argument, "outlier head {} of layer {} is named twice",
                  index(head.head), index(head.layer));
    }
  }
  if (heads.size() >= layers * kv_heads) {
    return fail(Errc::invalid_argument,
                "all {} KV heads are outlier heads: none is left to keep fewer tokens",
                heads.size());
  }
  return OutlierHeads(layers * kv_heads, std::move(heads));
}

std::size_t OutlierHeads::keep_of(const KeepRequest& request) const noexcept {
  const std::size_t mean = request.mean;
  const std::size_t outliers = heads_.size();
  if (outliers == 0) return mean;
  const std::size_t others = all_ - outliers;
  const std::size_t least = mean - mean / 2;
  const std::size_t most = (all_ * mean - others * least) / outliers;
  const std::size_t room = std::clamp(request.tokens, mean, most);
  const KvHead head{request.layer, request.head};
  return std::ranges::binary_search(heads_, head) ? room : (all_ * mean - outliers * room) / others;
}

std::vector<KvHead> HeadShares::largest(double part) const {
  std::vector<HeadShare> order = heads;
  std::ranges::stable_sort(order, std::greater{}, &HeadShare::share);
  const auto count =
      static_cast<std::size_t>(std::max(1L, std::lround(part * static_cast<double>(order.size()))));
  std::vector<KvHead> largest;
  for (const HeadShare& one : std::span(order).first(std::min(count, order.size()))) {
    largest.push_back(one.head);
  }
  std::ranges::sort(largest);
  return largest;
}

MatchSurvey::MatchSurvey(const KvShape& shape, std::size_t chunk)
    : shape_(shape), chunk_(chunk), windows_(shape.layers * shape.kv_heads) {}

void MatchSurvey::add(const KvHead& head, std::span<const std::byte* const> rows) {
  std::vector<std::uint32_t> positions(rows.size());
  std::iota(positions.begin(), positions.end(), 0U);
  const std::vector<std::uint32_t> degrees(rows.size(), 1U);
  const std::size_t list = index(head.layer) * shape_.kv_heads + index(head.head);
  windows_[list].push_back(
      edge_likeness(shape_, {.rows = rows, .positions = positions, .degrees = degrees}, chunk_));
}

HeadShares MatchSurvey::shares(double quantile) const {
  std::vector<float> all;
  for (const auto& windows : windows_) {
    for (const Likeness& likeness : windows)
      all.insert(all.end(), likeness.begin(), likeness.end());
  }
  const auto rank = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(all.size() - 1));
  std::ranges::nth_element(all, all.begin() + rank);
  HeadShares shares{.threshold = static_cast<double>(all[static_cast<std::size_t>(rank)])};
  for (std::size_t list = 0; list < windows_.size(); ++list) {
    double sum = 0;
    for (const Likeness& likeness : windows_[list]) sum += share_below(likeness, shares.threshold);
    shares.heads.push_back({.head = {static_cast<LayerId>(list / shape_.kv_heads),
                                     static_cast<HeadId>(list % shape_.kv_heads)},
                            .share = sum / static_cast<double>(windows_[list].size())});
  }
  return shares;
}

}  // namespace terrace::policies
