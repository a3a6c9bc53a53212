// Attention to a selection and to what it leaves of groups, for suites of the op.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace::testing::rests_scene {

inline constexpr std::size_t chunk_tokens = 64;
inline constexpr std::size_t page_tokens = 16;
inline constexpr std::size_t first = 5;
inline constexpr std::size_t tokens = 310;  // the last page is not full
inline constexpr std::size_t selected_max = 200;
inline constexpr std::size_t groups = 3;  // of a page
inline constexpr std::size_t entries_max = 45;
inline constexpr TokenRange candidates{first + 7, first + 253};
inline constexpr TokenRange window{first + 253, first + tokens};

/// Random rows in random groups, some of them without a token; every third candidate is selected.
class Scene {
 public:
  explicit Scene(const KvShape& shape, std::uint64_t stream = 0)
      : store(shape, 8, first + tokens, odd_offset(shape.dtype)),
        queries(shape.query_heads * shape.head_dim),
        output(shape.query_heads * shape.head_dim),
        attention_scratch(attention_scratch_floats(shape, store.tokens())),
        scratch(estimate_scratch_floats(shape, group_shape, candidates.size())),
        ids(shape.kv_heads * selected_max),
        counts(shape.kv_heads),
        rows(shape.kv_heads * selected_max),
        means(shape.kv_heads * entries_max * shape.row_bytes()),
        pseudo_rows(shape.kv_heads * entries_max),
        pseudo_bias(shape.kv_heads * entries_max),
        pseudo_counts(shape.kv_heads),
        counted(shape.kv_heads),
        random_(seed(), {91, stream}) {
    store.fill([&](std::size_t, std::size_t, std::size_t) { return 1 + normal(random_); });
    for (float& x : queries.span()) x = normal(random_);
    for (std::size_t i = 0; i < divide_up(tokens, chunk_tokens); ++i) {
      memory_.emplace_back(group_shape.chunk_begin + group_shape.chunk_bytes(shape, chunk_tokens));
      chunks_.push_back(memory_.back().data());
    }
    op = {.shape = shape,
          .query = queries.data(),
          .output = output.data(),
          .resident = store.table(),
          .sinks = {0, first},
          .window = window,
          .selected = rows.data(),
          .selected_count = counts.data(),
          .selected_stride = selected_max,
          .rests = {.candidates = candidates,
                    .groups = group_shape,
                    .index = {.chunks = chunks_.data(),
                              .chunk_tokens = chunk_tokens,
                              .first_token = first,
                              .token_count = tokens},
                    .ids = ids.data(),
                    .most = entries_max,
                    .means = means.data(),
                    .pseudo = {.rows = pseudo_rows.data(),
                               .bias = pseudo_bias.data(),
                               .count = pseudo_counts.data(),
                               .stride = entries_max},
                    .scratch = scratch.data(),
                    .counted = counted.data()},
          .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim)),
          .scratch = attention_scratch.data()};
    for (std::uint8_t& group : group_of) group = static_cast<std::uint8_t>(random_.below(groups));
    // One page has one group.
    std::fill_n(group_of.begin() + 4 * page_tokens, page_tokens, std::uint8_t{1});
    average();
    select(3);
  }

  /// Makes the groups of all pages.
  void average() {
    for (std::size_t head = 0; head < op.shape.kv_heads; ++head) {
      for (std::size_t page = 0; page < tokens / page_tokens; ++page) {
        kernels::host::average_groups(
            {.shape = op.shape,
             .groups = op.rests.groups,
             .index = op.rests.index,
             .head = head,
             .page = page,
             .rows = store.table(),
             .group_of = std::span(group_of).subspan(page * page_tokens, page_tokens)});
      }
    }
  }

  /// Selects every `step`-th candidate, another one of each KV head.
  void select(std::size_t step) {
    for (std::size_t head = 0; head < op.shape.kv_heads; ++head) {
      counts[head] = 0;
      for (std::size_t p = candidates.begin + head % step; p < candidates.end; p += step) {
        select(head, p);
      }
    }
  }
  /// Selects one more candidate, after the selected ones.
  void select(std::size_t head, std::size_t position) {
    const std::size_t at = head * selected_max + counts[head]++;
    ids[at] = static_cast<std::uint32_t>(position);
    rows[at] = store.row(head, position);
  }

  static constexpr GroupShape group_shape{
      .page_tokens = page_tokens, .groups = groups, .chunk_begin = 12};

  std::vector<std::uint8_t> group_of = std::vector<std::uint8_t>(tokens);  ///< in its page
  BlockStore store;
  Guarded<float> queries;
  Guarded<float> output;
  Guarded<float> attention_scratch;
  Guarded<float> scratch;
  Guarded<std::uint32_t> ids;
  Guarded<std::uint32_t> counts;
  Guarded<std::byte*> rows;
  Guarded<std::byte> means;
  Guarded<const std::byte*> pseudo_rows;
  Guarded<float> pseudo_bias;
  Guarded<std::uint32_t> pseudo_counts;
  Guarded<std::uint32_t> counted;  ///< the same once more
  DecodeAttention op;

 private:
  Rng random_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
};

}  // namespace terrace::testing::rests_scene
