#include "soft_matching.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <functional>
#include <numeric>

#include "terrace/core/ops.hpp"

namespace terrace::policies {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// An entry looks for a partner: numbers of groups.
struct Edge {
  float likeness = 0;
  std::size_t from = 0;
  std::size_t to = 0;
};

/// Groups of candidates in the order of their last ones, with their mean keys.
class Groups {
 public:
  Groups(const KvShape& shape, const Candidates& candidates, std::span<const std::uint32_t> which)
      : keys_(which.size(), shape.head_dim), degrees_(which.size()), members_(which.size()) {
    for (std::size_t i = 0; i < which.size(); ++i) {
      const auto row = static_cast<Eigen::Index>(i);
      for (std::size_t d = 0; d < shape.head_dim; ++d) {
        keys_(row, static_cast<Eigen::Index>(d)) =
            load_f32(candidates.rows[which[i]], shape.dtype, d);
      }
      degrees_[i] = static_cast<float>(candidates.degrees[which[i]]);
      members_[i] = {which[i]};
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }

  /// The edge of every other group, most alike first.
  [[nodiscard]] std::vector<Edge> edges(std::size_t chunk) const {
    const Matrix unit = keys_.rowwise().normalized();
    std::vector<Edge> all;
    for (std::size_t begin = 0; begin < size(); begin += chunk) {
      add_edges(unit, {begin, std::min(begin + chunk, size())}, all);
    }
    std::ranges::stable_sort(all, std::greater{}, &Edge::likeness);
    return all;
  }

  /// Merges along the edges: the group of `to` takes in the group of `from`.
  void merge(std::span<const Edge> edges) {
    for (const Edge& edge : edges) {
      const auto from = static_cast<Eigen::Index>(edge.from);
      const auto to = static_cast<Eigen::Index>(edge.to);
      const float both = degrees_[edge.from] + degrees_[edge.to];
      keys_.row(to) =
          (keys_.row(to) * degrees_[edge.to] + keys_.row(from) * degrees_[edge.from]) / both;
      degrees_[edge.to] = both;
      std::vector<std::uint32_t>& into = members_[edge.to];
      into.insert(into.end(), members_[edge.from].begin(), members_[edge.from].end());
      members_[edge.from].clear();
    }
    put_in_order();
  }

  [[nodiscard]] std::vector<std::vector<std::uint32_t>> take() && { return std::move(members_); }

 private:
  static void add_edges(const Matrix& unit, TokenRange chunk, std::vector<Edge>& all) {
    if (chunk.size() < 2) return;
    const auto every_other = [&](std::size_t first) -> Matrix {
      return unit(Eigen::seq(static_cast<Eigen::Index>(chunk.begin + first),
                             static_cast<Eigen::Index>(chunk.end) - 1, 2),
                  Eigen::all);
    };
    const Matrix likeness = every_other(0) * every_other(1).transpose();
    for (Eigen::Index i = 0; i < likeness.rows(); ++i) {
      Eigen::Index nearest = 0;
      const float best = likeness.row(i).maxCoeff(&nearest);
      all.push_back({best, chunk.begin + 2 * static_cast<std::size_t>(i),
                     chunk.begin + 2 * static_cast<std::size_t>(nearest) + 1});
    }
  }

  void put_in_order() {
    for (auto& members : members_) std::ranges::sort(members);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!members_[i].empty()) order.push_back(i);
    }
    std::ranges::sort(order, {}, [&](std::size_t i) { return members_[i].back(); });
    Matrix keys(order.size(), keys_.cols());
    std::vector<float> degrees;
    std::vector<std::vector<std::uint32_t>> members;
    for (std::size_t i = 0; i < order.size(); ++i) {
      keys.row(static_cast<Eigen::Index>(i)) = keys_.row(static_cast<Eigen::Index>(order[i]));
      degrees.push_back(degrees_[order[i]]);
      members.push_back(std::move(members_[order[i]]));
    }
    keys_ = std::move(keys);
    degrees_ = std::move(degrees);
    members_ = std::move(members);
  }

  Matrix keys_;
  std::vector<float> degrees_;
  std::vector<std::vector<std::uint32_t>> members_;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> match_softly(const KvShape& shape,
                                                     const Candidates& candidates,
                                                     std::span<const std::uint32_t> which,
                                                     std::size_t entries, std::size_t chunk) {
  Groups groups(shape, candidates, which);
  while (groups.size() > std::max<std::size_t>(1, entries)) {
    const std::vector<Edge> edges = groups.edges(chunk == 0 ? groups.size() : chunk);
    if (edges.empty()) break;  // chunks of one entry
    const std::size_t surplus = groups.size() - std::max<std::size_t>(1, entries);
    groups.merge(std::span(edges).first(std::min(surplus, edges.size())));
  }
  return std::move(groups).take();
}

std::vector<float> edge_likeness(const KvShape& shape, const Candidates& candidates,
                                 std::size_t chunk) {
  std::vector<std::uint32_t> all(candidates.size());
  std::iota(all.begin(), all.end(), 0U);
  std::vector<float> likeness;
  for (const Edge& edge :
       Groups(shape, candidates, all).edges(chunk == 0 ? candidates.size() : chunk)) {
    likeness.push_back(edge.likeness);
  }
  return likeness;
}

}  // namespace terrace::policies
