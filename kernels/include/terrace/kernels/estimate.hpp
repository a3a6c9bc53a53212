// Groups of tokens whose keys are alike, and their unselected rows. See GroupShape.
//
//   host::average_groups(groups);            // once, when all tokens of a page are indexed
//   host::decode_attention(op, threads);     // at each step: op.rests, in attention.hpp
//
// Not here: which tokens are a group (policies), and estimates of whole clusters
// (cluster_select.hpp).
#pragma once

#include <span>

#include "terrace/core/ops.hpp"

namespace terrace::kernels {

/// GroupRests of an attention, for backends that write each rest down as a row. Entries come in the
/// order of their groups. If no row of a group is selected, its entry is the row in the index.
struct EstimateRest {
  KvShape shape;
  const float* query = nullptr;  ///< [query_heads, head_dim], post-RoPE
  TokenRange candidates;
  GroupShape groups;
  IndexView index;
  const std::uint32_t* ids = nullptr;       ///< [kv_heads, id_stride]: selected positions, rising
  const std::uint32_t* id_count = nullptr;  ///< [kv_heads]
  std::size_t id_stride = 0;
  std::byte* const* rows = nullptr;  ///< [kv_heads, id_stride]: the rows of `ids`
  std::size_t most = 0;              ///< entries of a KV head
  float scale = 1;                   ///< of logits
  std::byte* means = nullptr;        ///< out [kv_heads, pseudo.stride] rows, a group each
  PseudoTarget pseudo;               ///< out
  float* scratch = nullptr;          ///< estimate_scratch_floats
  TokenRange pages;                  ///< GroupRests::pages()
  std::uint32_t* counted = nullptr;  ///< GroupRests::counted

  /// The entries that an attention makes.
  [[nodiscard]] static EstimateRest of(const DecodeAttention& op) noexcept {
    const GroupRests& rests = op.rests;
    return {.shape = op.shape,
            .query = op.query,
            .candidates = rests.candidates,
            .groups = rests.groups,
            .index = rests.index,
            .ids = rests.ids,
            .id_count = op.selected_count,
            .id_stride = op.selected_stride,
            .rows = op.selected,
            .most = rests.most,
            .scale = op.scale,
            .means = rests.means,
            .pseudo = rests.pseudo,
            .scratch = rests.scratch,
            .pages = rests.pages(),
            .counted = rests.counted};
  }
};

/// The attention once its rests are written down: they are entries like others.
[[nodiscard]] inline DecodeAttention with_rests_written(const DecodeAttention& op) noexcept {
  DecodeAttention attention = op;
  if (op.rests.ids == nullptr) return attention;
  const PseudoTarget& entries = op.rests.pseudo;
  attention.pseudo = {entries.rows, entries.bias, entries.count, entries.stride};
  attention.rests = {};
  return attention;
}

namespace host {

/// The groups of a page, of one KV head.
struct AverageGroups {
  KvShape shape;
  GroupShape groups;
  IndexView index;  ///< groups are written to its chunks
  std::size_t head = 0;
  std::size_t page = 0;  ///< number, from the index's first token on
  BlockTable rows;       ///< host blocks
  std::span<const std::uint8_t>
      group_of;  ///< [page_tokens], below groups.groups, or GroupShape::none
};

/// Whether a row may be of a group: its numbers, `count` of them, are finite, and so small that the
/// sum of a page's is. Another one would spoil the mean.
[[nodiscard]] bool fits_a_group(const std::byte* row, Dtype dtype, std::size_t count) noexcept;

/// Writes the groups of a page. Rows are added by rising positions, so that means have the same
/// bits on every instruction set.
///
/// Memory   the blocks of all tokens of the page are there
/// Limits   head_dim at most KvShape::head_dim_max; allocates nothing
/// Tests    tests/kernels/rests_test.cpp
void average_groups(const AverageGroups& op) noexcept;

}  // namespace host
}  // namespace terrace::kernels
