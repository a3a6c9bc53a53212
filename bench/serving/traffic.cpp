#include "serving/traffic.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "terrace/core/rng.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t tokens_per_drift = 64;  ///< until the clusters in use move on by one
constexpr std::size_t clusters_in_use = 16;
constexpr std::size_t steps_per_topic = 8;
/// Logit of a key at a cluster's centre: most of attention is then on a few clusters, as in models.
constexpr float centre_logit = 6;
constexpr float likeness = 0.8F;  ///< of a centre to the one before
constexpr float scatter = 0.5F;   ///< of members, where centres have a deviation of 1

/// Which numbers a stream of random ones is for.
enum Stream : std::uint64_t { cluster_begin, cluster_member, topic, query_member };

}  // namespace

RowPool::RowPool(const KvShape& shape, std::uint64_t seed) : shape_(shape) {
  const std::size_t elements = 2 * shape.head_dim;
  rows_.resize(clusters * rows_per_cluster * shape.row_bytes());
  floats_.resize(clusters * rows_per_cluster * elements);
  Rng rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> centre(elements);
  for (float& number : centre) number = normal(rng);
  const float step = std::sqrt(1 - likeness * likeness);
  std::size_t at = 0;
  for (std::size_t i = 0; i < clusters; ++i) {
    for (float& number : centre) number = likeness * number + step * normal(rng);
    for (std::size_t member = 0; member < rows_per_cluster; ++member) {
      for (const float number : centre) {
        store_f32(rows_.data(), shape.dtype, at, number + scatter * normal(rng));
        floats_[at] = load_f32(rows_.data(), shape.dtype, at);
        ++at;
      }
    }
  }
}

std::size_t Traffic::cluster(std::size_t layer, std::size_t head, std::size_t position) const {
  const std::size_t begin = Rng(seed_, {Stream::cluster_begin, layer, head})();
  const std::size_t drift = position / tokens_per_drift;
  Rng rng(seed_, {Stream::cluster_member, layer, head, position});
  return (begin % RowPool::clusters + drift + rng.below(clusters_in_use)) % RowPool::clusters;
}

std::size_t Traffic::row(std::size_t layer, std::size_t head, std::size_t position) const {
  const std::size_t of_cluster = cluster(layer, head, position);
  Rng rng(seed_, {Stream::cluster_member, head, layer, position});
  return of_cluster * RowPool::rows_per_cluster + rng.below(RowPool::keys_per_cluster);
}

void Traffic::fill_rows(std::size_t layer, TokenRange tokens, std::byte* target) const {
  for (std::size_t position = tokens.begin; position < tokens.end; ++position) {
    for (std::size_t head = 0; head < pool_->shape().kv_heads; ++head) {
      const auto bytes = pool_->row(row(layer, head, position));
      target = std::ranges::copy(bytes, target).out;
    }
  }
}

void Traffic::fill_query(std::size_t layer, std::size_t position, std::span<float> target) const {
  const KvShape& shape = pool_->shape();
  const float scale = centre_logit / std::sqrt(static_cast<float>(shape.head_dim));
  for (std::size_t head = 0; head < shape.query_heads; ++head) {
    Rng of_topic(seed_, {Stream::topic, layer, head, position / steps_per_topic});
    // The tokens known at the topic's first step, so that all its steps have one topic.
    const std::size_t known = position - position % steps_per_topic + 1;
    const std::size_t about = cluster(layer, head / shape.group(), of_topic.below(known));
    Rng of_step(seed_, {Stream::query_member, layer, head, position});
    const auto near = pool_->floats(about * RowPool::rows_per_cluster + RowPool::keys_per_cluster +
                                    of_step.below(RowPool::queries_per_cluster));
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      target[head * shape.head_dim + i] = scale * near[i];
    }
  }
}

void Traffic::fill_queries(std::size_t layer, TokenRange tokens, std::span<float> target) const {
  const std::size_t floats = pool_->shape().query_heads * pool_->shape().head_dim;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    fill_query(layer, tokens.begin + i, target.subspan(i * floats, floats));
  }
}

KvTensors packed_rows(const KvShape& shape, const std::byte* rows) noexcept {
  return {.keys = rows,
          .values = rows + shape.row_bytes() / 2,
          .token_stride = shape.token_bytes(),
          .head_stride = shape.row_bytes()};
}

}  // namespace terrace::bench
