// A selection of clusters over a made index, for suites of the op.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cluster_store.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::testing::cluster_scene {

inline constexpr KvShape shape{
    .layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 24, .dtype = Dtype::f16};
inline constexpr ClusterShape with_values{.chunk_tokens = 40, .slots = 9, .estimates = true};
inline constexpr std::size_t first = 5;
inline constexpr std::size_t tokens = 5 + 331;
inline constexpr std::size_t window_tokens = 60;

/// A selection over a store, with memory for all that it writes.
class Scene {
 public:
  explicit Scene(ClusterStore& store, const KvShape& kv = shape,
                 const ClusterShape& clusters = with_values)
      : queries(kv.query_heads * kv.head_dim),
        scratch(cluster_scratch_floats(kv, clusters, tokens)),
        ids(kv.query_heads * tokens, 0xffffffffU),
        counts(kv.query_heads),
        pseudo_rows(kv.kv_heads * pseudo_max),
        pseudo_bias(kv.kv_heads * pseudo_max),
        pseudo_counts(kv.kv_heads) {
    Rng rng(testing::seed(), {31});
    for (float& x : queries.span()) x = testing::normal(rng);
    op = {.common = {.shape = kv,
                     .query = queries.data(),
                     .candidates = {first, tokens - window_tokens},
                     .count = {.mean = 100},
                     .ids = ids.data(),
                     .id_count = counts.data(),
                     .id_stride = tokens,
                     .scratch = scratch.data()},
          .clusters = clusters,
          .index = store.view()};
  }

  void attend_to(const ClusterStore& store) {
    op.resident = store.rows.table();
    op.sinks = {0, first};
    op.window = {tokens - window_tokens, tokens};
  }
  void estimate(std::size_t count) {
    op.estimated = count;
    op.pseudo = {pseudo_rows.data(), pseudo_bias.data(), pseudo_counts.data(), pseudo_max};
  }
  [[nodiscard]] std::vector<std::uint32_t> list(std::size_t i) {
    return {ids.data() + i * tokens, ids.data() + i * tokens + counts[i]};
  }
  [[nodiscard]] bool intact() const {
    return scratch.intact() && ids.intact() && counts.intact() && pseudo_rows.intact() &&
           pseudo_bias.intact() && pseudo_counts.intact();
  }

  static constexpr std::size_t pseudo_max = 40;
  Guarded<float> queries;
  Guarded<float> scratch;
  Guarded<std::uint32_t> ids;
  Guarded<std::uint32_t> counts;
  Guarded<const std::byte*> pseudo_rows;
  Guarded<float> pseudo_bias;
  Guarded<std::uint32_t> pseudo_counts;
  ClusterSelect op;
};

/// Checks that `scene` holds what the reference selects for `op` into the memory of `expected`.
inline void expect_like_reference(Scene& scene, ClusterSelect op, Scene& expected) {
  op.common.ids = expected.ids.data();
  op.common.id_count = expected.counts.data();
  if (op.estimated > 0) {
    expected.estimate(op.estimated);
    op.pseudo = expected.op.pseudo;
  }
  kernels::reference::cluster_select(op);
  EXPECT_TRUE(scene.counts.same_bits(expected.counts));
  EXPECT_TRUE(scene.ids.same_bits(expected.ids));
  EXPECT_TRUE(scene.pseudo_counts.same_bits(expected.pseudo_counts));
  EXPECT_TRUE(scene.pseudo_rows.same_bits(expected.pseudo_rows));
  for (std::size_t i = 0; i < scene.pseudo_bias.size(); ++i) {
    EXPECT_FLOAT_EQ(scene.pseudo_bias[i], expected.pseudo_bias[i]);
  }
}

}  // namespace terrace::testing::cluster_scene
