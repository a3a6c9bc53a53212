#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/weights.hpp"
#include "terrace/kernels/cluster_plane.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::reference {
namespace {

struct Cluster {
  std::uint32_t number = 0;
  std::vector<std::uint32_t> candidates;  ///< positions
  double weight = 0;
  bool chosen = false;
};

ClusterPlane plane_of(const ClusterSelect& op, std::size_t head, std::size_t chunk) {
  return cluster_plane(op.common.shape, op.clusters, op.index.chunks[chunk], head);
}

const std::byte* centroid_of(const ClusterSelect& op, std::size_t head, std::uint32_t number) {
  return plane_of(op, head, number / op.clusters.slots).centroids +
         number % op.clusters.slots * centroid_bytes(op.common.shape, op.clusters);
}

double logit(const ClusterSelect& op, std::size_t query_head, const std::byte* key) {
  const KvShape& shape = op.common.shape;
  double sum = 0;
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    sum += double{op.common.query[query_head * shape.head_dim + i]} *
           double{load_f32(key, shape.dtype, i)};
  }
  return sum * static_cast<double>(shape.logit_scale());
}

std::vector<Cluster> clusters_of(const ClusterSelect& op, std::size_t head) {
  std::vector<Cluster> clusters;
  for (std::size_t p = op.common.candidates.begin; p < op.common.candidates.end; ++p) {
    const std::size_t at = p - op.index.first_token;
    const std::uint32_t number =
        plane_of(op, head, at / op.clusters.chunk_tokens).labels[at % op.clusters.chunk_tokens];
    const auto one = std::ranges::find(clusters, number, &Cluster::number);
    Cluster& cluster =
        one == clusters.end() ? clusters.emplace_back(Cluster{.number = number}) : *one;
    cluster.candidates.push_back(static_cast<std::uint32_t>(p));
  }
  std::ranges::sort(clusters, {}, &Cluster::number);
  return clusters;
}

double centroid_logit(const ClusterSelect& op, std::size_t query_head, const Cluster& cluster) {
  const std::size_t head = query_head / op.common.shape.group();
  return logit(op, query_head, centroid_of(op, head, cluster.number));
}

/// Gives each cluster its weight for the one query head of a list: its logit.
void set_weights(const ClusterSelect& op, std::size_t query_head, std::vector<Cluster>& clusters) {
  const bool by_cluster = op.ranking == ClusterRanking::cluster_weight;
  for (Cluster& cluster : clusters) {
    cluster.weight = centroid_logit(op, query_head, cluster);
    if (by_cluster) cluster.weight += std::log(static_cast<double>(cluster.candidates.size()));
  }
}

/// Adds each cluster's weight for one query head: its softmax over all members and what is attended
/// anyway.
void add_weights(const ClusterSelect& op, std::size_t query_head, std::vector<Cluster>& clusters) {
  const std::size_t head = query_head / op.common.shape.group();
  std::vector<double> scores;
  scores.reserve(clusters.size());
  for (const Cluster& cluster : clusters) {
    scores.push_back(limit(centroid_logit(op, query_head, cluster)));
  }
  std::vector<double> others;
  for (const TokenRange& range : {op.sinks, op.window}) {
    for (std::size_t p = range.begin; op.resident.blocks != nullptr && p < range.end; ++p) {
      others.push_back(
          limit(logit(op, query_head, row_address(op.common.shape, op.resident, head, p))));
    }
  }
  double largest = std::ranges::max(scores);
  for (const double other : others) largest = std::max(largest, other);
  double sum = 0;
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    sum += static_cast<double>(clusters[i].candidates.size()) * std::exp(scores[i] - largest);
  }
  for (const double other : others) sum += std::exp(other - largest);
  for (std::size_t i = 0; i < clusters.size() && sum > 0; ++i) {
    const auto size = static_cast<double>(clusters[i].candidates.size());
    const bool by_cluster = op.ranking == ClusterRanking::cluster_weight;
    clusters[i].weight += (by_cluster ? size : 1) * std::exp(scores[i] - largest) / sum;
  }
}

void choose(const ClusterSelect& op, std::size_t list, std::vector<Cluster>& clusters) {
  std::vector<Cluster*> order;
  order.reserve(clusters.size());
  for (Cluster& cluster : clusters) order.push_back(&cluster);
  std::ranges::stable_sort(order, is_above, &Cluster::weight);
  std::size_t left = op.common.wanted(list / lists_per_kv_head(op.common.shape, op.scope));
  std::size_t passed_over = 0;
  std::vector<std::uint32_t> ids;
  for (Cluster* const one : order) {
    const std::size_t taken = std::min(left, one->candidates.size());
    if (taken == 0) break;
    if (taken < one->candidates.size() && !op.trims) {
      if (++passed_over == clusters_passed_over_max) break;
      continue;
    }
    ids.insert(ids.end(), one->candidates.begin(),
               one->candidates.begin() + static_cast<std::ptrdiff_t>(taken));
    one->chosen = true;
    left -= taken;
  }
  std::ranges::sort(ids);
  std::ranges::copy(ids, op.common.ids + list * op.common.id_stride);
  op.common.id_count[list] = static_cast<std::uint32_t>(ids.size());
}

void estimate(const ClusterSelect& op, std::size_t list, std::vector<Cluster>& clusters) {
  std::vector<const Cluster*> rest;
  for (const Cluster& cluster : clusters) {
    if (!cluster.chosen) rest.push_back(&cluster);
  }
  std::ranges::stable_sort(rest, is_above, &Cluster::weight);
  rest.resize(std::min({rest.size(), op.estimated, op.pseudo.stride}));
  std::ranges::sort(rest, {}, [](const Cluster* one) { return one->number; });
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const std::size_t at = list * op.pseudo.stride + i;
    op.pseudo.rows[at] = centroid_of(op, list, rest[i]->number);
    op.pseudo.bias[at] =
        static_cast<float>(std::log(static_cast<double>(rest[i]->candidates.size())));
  }
  op.pseudo.count[list] = static_cast<std::uint32_t>(rest.size());
}

}  // namespace

void cluster_select(const ClusterSelect& op) {
  const bool per_query = op.scope == ListScope::query_head;
  const std::size_t group = op.common.shape.group();
  const std::size_t lists = per_query ? op.common.shape.query_heads : op.common.shape.kv_heads;
  for (std::size_t list = 0; list < lists; ++list) {
    std::vector<Cluster> clusters = clusters_of(op, per_query ? list / group : list);
    const std::size_t heads = per_query ? 1 : group;
    if (heads == 1) set_weights(op, list, clusters);
    for (std::size_t q = 0; q < heads && heads > 1; ++q) {
      add_weights(op, list * group + q, clusters);
    }
    choose(op, list, clusters);
    if (op.pseudo.count != nullptr) estimate(op, list, clusters);
  }
}

}  // namespace terrace::kernels::reference
