#include "terrace/policies/head_budget.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "terrace/core/bytes.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<const Matrix>;

// Of the queries given, spread evenly: heads differ by much more than their queries do.
constexpr std::size_t queries_max = 16;

/// Of one KV head: how much its n-th heaviest row weighs, summed over queries.
class Curve {
 public:
  Curve(const HeadDeal& deal, std::size_t head)
      : deal_(deal), head_(head), weights_(dealt_rows_most(deal.shape, deal.selected), 0.0) {}

  Result<std::vector<double>> measure() {
    const KvShape& shape = deal_.shape;
    const std::size_t floats = shape.query_heads * shape.head_dim;
    const std::size_t count = deal_.queries.size() / floats;
    if (count == 0) return weights_;
    std::vector<float> keys(deal_.length * shape.head_dim);
    TERRACE_TRY(kernels::host::read_keys({.shape = shape,
                                          .rows = deal_.rows,
                                          .tokens = {0, deal_.length},
                                          .head = head_,
                                          .dims = shape.head_dim},
                                         keys.data()));
    const std::size_t used = std::min(count, queries_max);
    for (std::size_t i = 0; i < used; ++i) {
      const std::size_t from_last = i * count / used;
      const std::size_t group_floats = shape.group() * shape.head_dim;
      const float* const queries =
          deal_.queries.data() + (count - 1 - from_last) * floats + head_ * group_floats;
      add_position(deal_.length - from_last, keys.data(), queries);
    }
    return std::move(weights_);
  }

 private:
  /// Adds the weights of the group's queries at the last of the positions that they see.
  void add_position(std::size_t seen, const float* keys, const float* queries) {
    const std::size_t end = seen - std::min(seen, deal_.window + 1);
    if (end <= deal_.sinks) return;
    const auto dims = static_cast<Eigen::Index>(deal_.shape.head_dim);
    const auto group = static_cast<Eigen::Index>(deal_.shape.group());
    const auto positions = static_cast<Eigen::Index>(seen);
    Matrix weights = Rows(queries, group, dims) * Rows(keys, positions, dims).transpose();
    weights *= 1.0F / std::sqrt(static_cast<float>(deal_.shape.head_dim));
    for (Eigen::Index q = 0; q < group; ++q) normalize(weights.row(q));
    const auto first = static_cast<Eigen::Index>(deal_.sinks);
    const Matrix candidates = weights.middleCols(first, static_cast<Eigen::Index>(end) - first);
    if (deal_.lists == ListScope::kv_head) return add_list(candidates.colwise().sum());
    for (Eigen::Index q = 0; q < group; ++q) add_list(candidates.row(q));
  }

  /// Replaces logits by their softmax; what is not finite weighs nothing.
  static void normalize(Eigen::Ref<Matrix, 0, Eigen::OuterStride<>> row) {
    constexpr float none = -std::numeric_limits<float>::infinity();
    row = row.array().isFinite().select(row, none);
    const float largest = row.maxCoeff();
    if (largest == none) {
      row.setZero();
      return;
    }
    row = (row.array() - largest).exp();
    row /= row.sum();
  }

  void add_list(const Eigen::RowVectorXf& list) {
    std::vector<float> falling(list.begin(), list.end());
    const std::size_t count = std::min(falling.size(), weights_.size());
    const auto end = falling.begin() + static_cast<std::ptrdiff_t>(count);
    std::ranges::partial_sort(falling, end, std::greater<>());
    for (std::size_t i = 0; i < count; ++i) weights_[i] += double{falling[i]};
  }

  const HeadDeal& deal_;
  std::size_t head_;
  std::vector<double> weights_;
};

/// Rows for each head, adding up to selected * kv_heads.
std::vector<std::size_t> deal_rows(const HeadDeal& deal,
                                   const std::vector<std::vector<double>>& curves) {
  const std::size_t least = deal.selected / head_rows_least;
  std::vector<std::size_t> rows(curves.size(), least);
  for (std::size_t left = (deal.selected - least) * rows.size(); left > 0; --left) {
    std::size_t best = rows.size();
    const auto is_better = [&](std::size_t head) {
      if (rows[head] == curves[head].size()) return false;
      if (best == rows.size()) return true;
      const double gain = curves[head][rows[head]];
      const double best_gain = curves[best][rows[best]];
      // Where nothing is known, alike.
      return gain != best_gain ? gain > best_gain : rows[head] < rows[best];
    };
    for (std::size_t head = 0; head < rows.size(); ++head) {
      if (is_better(head)) best = head;
    }
    ++rows[best];
  }
  return rows;
}

}  // namespace

Result<std::vector<std::uint32_t>> deal_heads(const HeadDeal& deal, Parallel& threads) {
  TERRACE_TRY(deal.shape.validate());
  std::vector<Result<std::vector<double>>> measured(deal.shape.kv_heads);
  threads.for_each(measured.size(),
                   [&](std::size_t head) { measured[head] = Curve(deal, head).measure(); });
  std::vector<std::vector<double>> curves;
  for (Result<std::vector<double>>& curve : measured) {
    if (!curve) return tl::unexpected(curve.error());
    curves.push_back(std::move(*curve));
  }
  const std::vector<std::size_t> rows = deal_rows(deal, curves);
  std::vector<std::uint32_t> shares(rows.size());
  std::size_t sum = 0;
  for (std::size_t head = 0; head < rows.size(); ++head) {
    sum += rows[head];
    // Rounded up, so that rounding down gives back what was dealt.
    shares[head] = static_cast<std::uint32_t>(
        divide_up(sum * head_share_one, std::max<std::size_t>(deal.selected, 1)));
  }
  return shares;
}

}  // namespace terrace::policies
