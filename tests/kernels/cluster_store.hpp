// A cluster index in memory: rows, their labels, and centroids that are their means.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/cluster_select.hpp"

namespace terrace::testing {

class ClusterStore {
 public:
  /// Rows of positions [0, tokens); those from `first` on are indexed and drawn into clusters.
  ClusterStore(const KvShape& shape, const ClusterShape& clusters, std::size_t first,
               std::size_t tokens, std::size_t clusters_used)
      : rows(shape, 16, tokens, odd_offset(shape.dtype)),
        shape_(shape),
        clusters_(clusters),
        first_(first),
        count_(tokens - first) {
    rows.fill_normal(21);
    const std::size_t bytes = shape.kv_heads * kernels::cluster_plane_bytes(shape, clusters);
    for (std::size_t i = 0; i < divide_up(count_, clusters.chunk_tokens); ++i) {
      memory_.emplace_back(bytes);
      chunks_.push_back(memory_.back().data());
    }
    Rng rng(seed(), {22});
    const std::size_t room = chunks_.size() * clusters.slots;
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      for (std::size_t token = 0; token < count_; ++token) {
        // Every third place at most: some stay without a cluster.
        label(head, token) = static_cast<std::uint32_t>(rng.below(clusters_used) * 3 % room);
      }
    }
    write_clusters();
  }

  /// Makes centroids and sizes from rows and labels.
  void write_clusters() {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::uint32_t c = 0; c < chunks_.size() * clusters_.slots; ++c) write_cluster(head, c);
    }
  }

  /// Gives clusters centroids of their own instead: element(cluster, i), i in [0, head_dim).
  void fill_centroids(const std::function<float(std::size_t, std::size_t)>& element) {
    const std::size_t bytes = kernels::centroid_bytes(shape_, clusters_);
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::size_t c = 0; c < chunks_.size() * clusters_.slots; ++c) {
        std::byte* const centroid =
            plane(head, c / clusters_.slots).centroids + c % clusters_.slots * bytes;
        for (std::size_t i = 0; i < shape_.head_dim; ++i) {
          store_f32(centroid, shape_.dtype, i, element(c, i));
        }
      }
    }
  }

  [[nodiscard]] kernels::ClusterPlane plane(std::size_t head, std::size_t chunk) {
    return kernels::cluster_plane(shape_, clusters_, chunks_[chunk], head);
  }
  [[nodiscard]] std::uint32_t& label(std::size_t head, std::size_t token) {
    return plane(head, token / clusters_.chunk_tokens).labels[token % clusters_.chunk_tokens];
  }
  [[nodiscard]] std::vector<std::size_t> members(std::size_t head, std::uint32_t cluster) {
    std::vector<std::size_t> positions;
    for (std::size_t token = 0; token < count_; ++token) {
      if (label(head, token) == cluster) positions.push_back(first_ + token);
    }
    return positions;
  }

  [[nodiscard]] IndexView view() {
    return {.chunks = chunks_.data(),
            .chunk_tokens = clusters_.chunk_tokens,
            .first_token = first_,
            .token_count = count_};
  }
  [[nodiscard]] bool intact() const {
    return std::ranges::all_of(memory_, [](const auto& chunk) { return chunk.intact(); });
  }

  BlockStore rows;

 private:
  void write_cluster(std::size_t head, std::uint32_t cluster) {
    const auto positions = members(head, cluster);
    const kernels::ClusterPlane target = plane(head, cluster / clusters_.slots);
    const std::size_t slot = cluster % clusters_.slots;
    target.sizes[slot] = static_cast<std::uint32_t>(positions.size());
    if (positions.empty()) return;
    target.firsts[slot] = static_cast<std::uint32_t>(positions.front() - first_);
    const std::size_t dims = clusters_.estimates ? 2 * shape_.head_dim : shape_.head_dim;
    std::byte* const stored = target.centroids + slot * kernels::centroid_bytes(shape_, clusters_);
    for (std::size_t i = 0; i < dims; ++i) {
      double mean = 0;
      for (const std::size_t p : positions) mean += double{rows.key(head, p, i)};
      mean /= static_cast<double>(positions.size());
      store_f32(stored, shape_.dtype, i, static_cast<float>(mean));
    }
  }

  KvShape shape_;
  ClusterShape clusters_;
  std::size_t first_;
  std::size_t count_;
  std::vector<Guarded<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
};

}  // namespace terrace::testing
