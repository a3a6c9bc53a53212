// Ranking clusters by their centroids, choosing the best ones and listing their members.
#include <algorithm>

#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/cluster_plane.hpp"
#include "terrace/kernels/cluster_select.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t members = 16;  // of a cluster, as policies have it in the mean
constexpr std::size_t full_tokens = 32'768;
constexpr std::size_t full_count = 1024;
constexpr KvShape cluster_shape{.layers = 1, .query_heads = 4, .kv_heads = 1, .head_dim = 128};
constexpr ClusterShape clusters{.chunk_tokens = 256, .slots = 256 / members};

/// One KV head's selection for the query heads of its group. Members of a cluster lie anywhere.
class ClusterChoice {
 public:
  explicit ClusterChoice(bool quick)
      : tokens_(quick ? 2048 : full_tokens),
        count_(std::min(full_count, tokens_ / 4)),
        query_(normal_numbers(cluster_shape.query_heads * cluster_shape.head_dim, 12)),
        memory_(tokens_ / clusters.chunk_tokens * plane_bytes()),
        chunks_(cut_chunks(memory_, plane_bytes())),
        ids_(count_),
        scratch_(cluster_scratch_floats(cluster_shape, clusters, tokens_)) {
    write_clusters();
    kernels::reference::cluster_select(op());
    expected_ = ids_;
  }

  void run() {
    Serial threads;
    kernels::host::cluster_select(op(), threads);
  }

  /// All but the rows of one cluster: rounding may swap neighbours in rank.
  [[nodiscard]] Status verify() const {
    return check_selected({ids_.data(), id_count_}, expected_, members);
  }

 private:
  static std::size_t plane_bytes() { return kernels::cluster_plane_bytes(cluster_shape, clusters); }

  [[nodiscard]] kernels::ClusterPlane plane(std::size_t chunk) const {
    return kernels::cluster_plane(cluster_shape, clusters, chunks_[chunk], 0);
  }

  void write_clusters() {
    const std::vector<float> centroids =
        normal_numbers(tokens_ / members * cluster_shape.head_dim, 13);
    std::vector<std::uint32_t> order = shuffled(tokens_, 14);
    for (std::uint32_t cluster = 0; cluster < tokens_ / members; ++cluster) {
      const kernels::ClusterPlane its = plane(cluster / clusters.slots);
      const std::size_t slot = cluster % clusters.slots;
      for (std::size_t i = 0; i < cluster_shape.head_dim; ++i) {
        store_f32(its.centroids, cluster_shape.dtype, slot * cluster_shape.head_dim + i,
                  centroids[cluster * cluster_shape.head_dim + i]);
      }
      const auto own = std::span(order).subspan(cluster * members, members);
      its.sizes[slot] = members;
      its.firsts[slot] = std::ranges::min(own);
      for (const std::uint32_t token : own) {
        plane(token / clusters.chunk_tokens).labels[token % clusters.chunk_tokens] = cluster;
      }
    }
  }

  [[nodiscard]] ClusterSelect op() {
    return {.common = {.shape = cluster_shape,
                       .query = query_.data(),
                       .candidates = {0, tokens_},
                       .count = {.mean = count_},
                       .ids = ids_.data(),
                       .id_count = &id_count_,
                       .id_stride = ids_.size(),
                       .scratch = scratch_.data()},
            .clusters = clusters,
            .index = {.chunks = chunks_.data(),
                      .chunk_tokens = clusters.chunk_tokens,
                      .token_count = tokens_}};
  }

  std::size_t tokens_;
  std::size_t count_;
  std::vector<float> query_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
  std::vector<std::uint32_t> ids_;
  std::uint32_t id_count_ = 0;
  std::vector<float> scratch_;
  std::vector<std::uint32_t> expected_;
};

}  // namespace

std::vector<Question> cluster_questions() {
  const std::string name = "cluster_select_g4_n32768_c2048_k1024";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    const auto choice = std::make_shared<ClusterChoice>(quick);
    return Contest{.ours = {.name = name,
                            .version = std::string(version()),
                            .run = [choice] { choice->run(); },
                            .verify = [choice] { return choice->verify(); }},
                   .peer = {}};
  };
  return {{.name = name,
           .unit = "s",
           .parameters = {{"threads", 1},
                          {"rows", full_tokens},
                          {"clusters", full_tokens / members},
                          {"head_dim", cluster_shape.head_dim},
                          {"query_heads", cluster_shape.query_heads},
                          {"selected", full_count},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
