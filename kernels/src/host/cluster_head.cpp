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

/// The logarithm of a sum of exponentials, term by term.
class LogSum {
 public:
  void add(float logit) noexcept {
    const auto term = double{std::min(logit, std::numeric_limits<float>::max())};
    if (!(term > -std::numeric_limits<double>::infinity())) return;
    if (term > largest_) {
      sum_ *= std::exp(largest_ - term);
      largest_ = term;
    }
    sum_ += std::exp(term - largest_);
  }
  [[nodiscard]] double value() const noexcept {
    return sum_ > 0 ? largest_ + std::log(sum_) : -std::numeric_limits<double>::infinity();
  }

 private:
  double largest_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0;
};

}  // namespace

ClusterHead::ClusterHead(const ClusterSelect& op, std::size_t head) noexcept
    : op_(op), head_(head), stride_(cluster_row_floats(op.clusters, op.index.token_count)) {
  const std::size_t rows = 2 * group() + 5;
  scores_ = op.common.scratch + head * rows * stride_;
  weights_ = scores_ + 2 * group() * stride_;
  counts_ = reinterpret_cast<std::uint32_t*>(weights_ + stride_);
  active_ = counts_ + stride_;
  order_ = active_ + stride_;
  marks_ = order_ + stride_;
  for (std::size_t q = 0; q < group(); ++q) mean_square_ += square_of_query(q);
  mean_square_ /= static_cast<float>(group());
}

void ClusterHead::count_members() noexcept {
  // Neighbours tend to share a cluster. In tables of their own they need not wait for each other.
  std::uint32_t* const tables[] = {counts_, active_, order_, marks_};
  for (std::uint32_t* const table : tables) std::fill_n(table, stride_, 0U);
  for_each_chunk(op_.index, op_.common.candidates,
                 [&](std::byte* chunk, std::size_t offset, std::size_t, std::size_t count) {
                   const std::uint32_t* const labels =
                       cluster_plane(op_.common.shape, op_.clusters, chunk, head_).labels + offset;
                   for (std::size_t i = 0; i < count; ++i) ++tables[i % 4][labels[i]];
                 });
  for (std::size_t c = 0; c < stride_; ++c) counts_[c] += active_[c] + order_[c] + marks_[c];
  std::fill_n(marks_, stride_, 0U);
  active_count_ = 0;
  for (std::uint32_t cluster = 0; cluster < stride_; ++cluster) {
    if (counts_[cluster] > 0) active_[active_count_++] = cluster;
  }
}

ClusterPlane ClusterHead::plane_of(std::uint32_t i, std::size_t& slot) const noexcept {
  const std::uint32_t cluster = active_[i];
  slot = cluster % op_.clusters.slots;
  return cluster_plane(op_.common.shape, op_.clusters,
                       op_.index.chunks[cluster / op_.clusters.slots], head_);
}

const std::byte* ClusterHead::centroid(std::uint32_t i) const noexcept {
  std::size_t slot = 0;
  const ClusterPlane plane = plane_of(i, slot);
  return plane.centroids + slot * centroid_bytes(op_.common.shape, op_.clusters);
}

float ClusterHead::log_members(std::size_t i) const noexcept {
  return std::log(static_cast<float>(counts_[active_[i]]));
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
                  .scale = logit_scale(shape),
                  .queries = queries,
                  .query_count = group(),
                  .keys = keys[turn].data(),
                  .key_count = count,
                  .logits = scores_ + begin,
                  .stride = stride_});
    begin += count;
    count = next;
  }
  for (std::size_t i = 0; i < active_count_; ++i) {
    const float log_count = log_members(i);
    for (std::size_t q = 0; q < group(); ++q) scores(q)[i] += log_count;
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
  const ClusterPlane plane = plane_of(i, slot);
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
    std::array<LogSum, queries_at_once> sums;
    for (const TokenRange& range : {op_.sinks, op_.window}) {
      for (std::size_t begin = range.begin; begin < range.end; begin += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, range.end - begin);
        for (std::size_t i = 0; i < count; ++i) {
          keys[i] = row_address(shape, op_.resident, head_, begin + i);
        }
        row_products({.dtype = shape.dtype,
                      .dims = shape.head_dim,
                      .scale = logit_scale(shape),
                      .queries = op_.common.query + (head_ * group() + first) * shape.head_dim,
                      .query_count = queries,
                      .keys = keys.data(),
                      .key_count = count,
                      .logits = logits.data(),
                      .stride = rows_at_once});
        for (std::size_t q = 0; q < queries; ++q) {
          for (std::size_t i = 0; i < count; ++i) sums[q].add(logits[q * rows_at_once + i]);
        }
      }
    }
    for (std::size_t q = 0; q < queries; ++q) {
      scores(first + q)[active_count_] = static_cast<float>(sums[q].value());
    }
  }
}

std::span<std::uint32_t> ClusterHead::order() noexcept {
  std::iota(order_, order_ + active_count_, 0U);
  return {order_, active_count_};
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
                   const std::uint32_t* const labels =
                       cluster_plane(op_.common.shape, op_.clusters, chunk, head_).labels + offset;
                   for (std::size_t i = 0; i < count; i += labels_at_once) {
                     list(labels + i, first + i, std::min(labels_at_once, count - i));
                   }
                 });
  return listed;
}

void ClusterHead::clear_marks() noexcept { std::fill_n(marks_, stride_, 0U); }

}  // namespace terrace::kernels::host
