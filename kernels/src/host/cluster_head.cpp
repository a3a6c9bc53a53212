#include "host/cluster_head.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "host/marked_labels.hpp"
#include "host/prefetch.hpp"
#include "host/row_products.hpp"
#include "host/scores.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::host {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t rows_at_once = 64;
constexpr std::size_t queries_at_once = 4;

/// Logarithms of small counts.
const std::array<float, 257> logs = [] {
  std::array<float, 257> of{};
  for (std::size_t i = 0; i < of.size(); ++i) of[i] = std::log(static_cast<float>(i));
  return of;
}();

/// NaN has weight 0, and a logit counts as the largest number at most.
void limit(std::span<float> logits) noexcept {
  for (float& logit : logits) {
    logit = logit > minus_infinity ? std::min(logit, std::numeric_limits<float>::max())
                                   : minus_infinity;
  }
}

}  // namespace

ClusterHead::ClusterHead(const ClusterSelect& op, std::size_t head) noexcept
    : op_(op), head_(head), stride_(cluster_row_floats(op.clusters, op.index.token_count)) {
  const std::size_t rows = 2 * group() + 6;
  scores_ = op.common.scratch + head * rows * stride_;
  weights_ = scores_ + 2 * group() * stride_;
  counts_ = reinterpret_cast<std::uint32_t*>(weights_ + stride_);
  active_ = counts_ + stride_;
  order_ = active_ + stride_;
  marks_ = order_ + 2 * stride_;
  for (std::size_t q = 0; q < group(); ++q) mean_square_ += square_of_query(q);
  mean_square_ /= static_cast<float>(group());
}

void ClusterHead::count_members() noexcept {
  const std::size_t slots = op_.clusters.slots;
  const std::size_t indexed = op_.index.token_count;
  const std::size_t room = cluster_room(op_.clusters, indexed);
  for (std::size_t begin = 0; begin < room; begin += slots) {
    const ClusterPlane plane = plane_in(op_.index.chunks[begin / slots]);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      counts_[begin + slot] = plane.firsts[slot] < indexed ? plane.sizes[slot] : 0;
    }
  }
  const std::size_t first = op_.index.first_token;
  leave_out({first, op_.common.candidates.begin});
  leave_out({op_.common.candidates.end, first + indexed});
  clear_marks();
  active_count_ = 0;
  for (std::uint32_t cluster = 0; cluster < room; ++cluster) {
    active_[active_count_] = cluster;
    active_count_ += counts_[cluster] > 0 ? 1 : 0;
  }
}

void ClusterHead::leave_out(TokenRange tokens) noexcept {
  for_each_chunk(op_.index, tokens,
                 [&](std::byte* chunk, std::size_t offset, std::size_t, std::size_t count) {
                   const std::uint32_t* const labels = plane_in(chunk).labels + offset;
                   for (std::size_t i = 0; i < count; ++i) --counts_[labels[i]];
                 });
}

const ClusterPlane& ClusterHead::plane_of(std::uint32_t i, std::size_t& slot) const noexcept {
  const std::size_t slots = op_.clusters.slots;
  const std::size_t cluster = active_[i];
  const bool here = cluster >= first_of_plane_ && cluster < first_of_plane_ + slots;
  if (!here || plane_.labels == nullptr) {
    const std::size_t chunk = cluster / slots;
    plane_ = plane_in(op_.index.chunks[chunk]);
    first_of_plane_ = chunk * slots;
  }
  slot = cluster - first_of_plane_;
  return plane_;
}

const std::byte* ClusterHead::centroid(std::uint32_t i) const noexcept {
  std::size_t slot = 0;
  const ClusterPlane& plane = plane_of(i, slot);
  return plane.centroids + slot * centroid_bytes(op_.common.shape, op_.clusters);
}

float ClusterHead::log_members(std::size_t i) const noexcept {
  const std::uint32_t count = counts_[active_[i]];
  return count < logs.size() ? logs[count] : std::log(static_cast<float>(count));
}

const std::uint32_t* ClusterHead::counts_of_scores() noexcept {
  for (std::uint32_t i = 0; i < active_count_; ++i) order_[i] = members(i);
  order_[active_count_] = 1;
  std::fill(order_ + active_count_ + 1, order_ + stride_, 0U);
  return order_;
}

std::size_t ClusterHead::ask_for_centroids(std::size_t begin,
                                           const std::byte** rows) const noexcept {
  const std::size_t bytes = centroid_bytes(op_.common.shape, op_.clusters);
  const std::size_t count = std::min(rows_at_once, active_count_ - begin);
  for (std::size_t i = 0; i < count; ++i) {
    rows[i] = centroid(static_cast<std::uint32_t>(begin + i));
    prefetch(rows[i], bytes);
  }
  return count;
}

void ClusterHead::score() noexcept {
  const KvShape& shape = op_.common.shape;
  const float* const queries = op_.common.query + head_ * group() * shape.head_dim;
  std::array<std::array<const std::byte*, rows_at_once>, 2> keys;
  std::size_t count = ask_for_centroids(0, keys[0].data());
  for (std::size_t begin = 0, turn = 0; count > 0; turn = 1 - turn) {
    const std::size_t next = ask_for_centroids(begin + count, keys[1 - turn].data());
    row_products({.dtype = shape.dtype,
                  .dims = shape.head_dim,
                  .scale = shape.logit_scale(),
                  .queries = queries,
                  .query_count = group(),
                  .keys = keys[turn].data(),
                  .key_count = count,
                  .logits = scores_ + begin,
                  .stride = stride_});
    begin += count;
    count = next;
  }
  if (op_.spreads) {
    for (std::size_t q = 0; q < group(); ++q) {
      const float square = square_of_query(q);
      for (std::uint32_t i = 0; i < active_count_; ++i) scores(q)[i] += spread(i, square);
    }
  }
  for (std::size_t q = 0; q < group(); ++q) {
    std::fill(scores(q) + active_count_, scores(q) + stride_, minus_infinity);
  }
  if (op_.resident.blocks != nullptr) score_steady_rows();
}

float ClusterHead::square_of_query(std::size_t query) const noexcept {
  const std::size_t dims = op_.common.shape.head_dim;
  const float* const q = op_.common.query + (head_ * group() + query) * dims;
  return std::inner_product(q, q + dims, q, 0.0F) / static_cast<float>(dims);
}

float ClusterHead::spread(std::uint32_t i, float query_square) const noexcept {
  if (!op_.spreads) return 0;
  std::size_t slot = 0;
  const ClusterPlane& plane = plane_of(i, slot);
  return std::min(0.5F * query_square * plane.variance[slot], spread_max);
}

float ClusterHead::bias(std::uint32_t i) const noexcept {
  return log_members(i) + spread(i, mean_square_);
}

void ClusterHead::score_steady_rows() noexcept {
  const KvShape& shape = op_.common.shape;
  std::array<const std::byte*, rows_at_once> keys;
  std::array<float, queries_at_once * rows_at_once> logits;
  for (std::size_t first = 0; first < group(); first += queries_at_once) {
    const std::size_t queries = std::min(queries_at_once, group() - first);
    std::array<MassEstimate, queries_at_once> sums;
    for (const TokenRange& range : {op_.sinks, op_.window}) {
      for (std::size_t begin = range.begin; begin < range.end; begin += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, range.end - begin);
        for (std::size_t i = 0; i < count; ++i) {
          keys[i] = row_address(shape, op_.resident, head_, begin + i);
        }
        row_products({.dtype = shape.dtype,
                      .dims = shape.head_dim,
                      .scale = shape.logit_scale(),
                      .queries = op_.common.query + (head_ * group() + first) * shape.head_dim,
                      .query_count = queries,
                      .keys = keys.data(),
                      .key_count = count,
                      .logits = logits.data(),
                      .stride = rows_at_once});
        for (std::size_t q = 0; q < queries; ++q) {
          float* const its = &logits[q * rows_at_once];
          limit({its, count});
          add_logits(its, count, sums[q]);
        }
      }
    }
    for (std::size_t q = 0; q < queries; ++q) {
      scores(first + q)[active_count_] = static_cast<float>(sums[q].log());
    }
  }
}

std::span<RankedCluster> ClusterHead::ranked(const float* weights) noexcept {
  auto* const all = reinterpret_cast<RankedCluster*>(order_);
  for (std::uint32_t i = 0; i < active_count_; ++i) all[i] = {key_of(weights[i]), i};
  return {all, active_count_};
}

std::span<std::uint32_t> ClusterHead::unchosen() noexcept {
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < active_count_; ++i) {
    if (!chosen(i)) order_[count++] = i;
  }
  return {order_, count};
}

std::uint32_t ClusterHead::list_members(std::uint32_t* ids) const noexcept {
  std::uint32_t listed = 0;
  std::array<std::uint32_t, labels_at_once> marked;
  const auto list = [&](const std::uint32_t* labels, std::size_t first, std::size_t count) {
    const std::size_t found = find_marked(labels, count, marks_, marked.data());
    for (std::size_t i = 0; i < found; ++i) {
      // The lowest bits count down; the highest one remembers that the cluster is chosen.
      std::uint32_t& left = marks_[labels[marked[i]]];
      if (left == chosen_bit) continue;
      --left;
      ids[listed++] = static_cast<std::uint32_t>(op_.common.candidates.begin + first + marked[i]);
    }
  };
  for_each_chunk(op_.index, op_.common.candidates,
                 [&](std::byte* chunk, std::size_t offset, std::size_t first, std::size_t count) {
                   const std::uint32_t* const labels = plane_in(chunk).labels + offset;
                   for (std::size_t i = 0; i < count; i += labels_at_once) {
                     list(labels + i, first + i, std::min(labels_at_once, count - i));
                   }
                 });
  return listed;
}

void ClusterHead::clear_marks() noexcept { std::fill_n(marks_, stride_, 0U); }

}  // namespace terrace::kernels::host
