// Attention to what was selected, and to tiles of all rows. See terrace/core/ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops/groups.hpp"

namespace terrace {

/// Entries that stand for rows not fetched, with a logit bias: rows of the index, or of
/// GroupRests::means.
struct PseudoEntries {
  const std::byte* const* rows = nullptr;  ///< [lists, stride]
  const float* bias = nullptr;             ///< [lists, stride], added to the scaled logit
  const std::uint32_t* count = nullptr;    ///< [lists]
  std::size_t stride = 0;
};

/// The target of a softmax's weights, for policies that choose by them. Lists are those of `scope`:
/// the list of a KV head has the sums over the query heads of its group, in their order.
struct AttentionWeights {
  ListScope scope = ListScope::kv_head;
  float* sums = nullptr;   ///< [lists, stride]; null = no weights are written
  std::size_t stride = 0;  ///< floats from one list to the next
};

/// Attention of one query token over sinks | window | selected | pseudo-entries, in this order.
///
/// The list of entries is cut at multiples of `attention_split`, by CUDA of `attention_split_min`;
/// each piece is an online softmax of its own, and the pieces are merged in order. Therefore the
/// bits of the output depend neither on where a row lies nor on the number of threads.
///
/// If `weights.sums` is set, the weight of each entry is written, too, in the order of the entries.
/// The weights of a query head add up to 1, up to rounding. If all logits of a head are -inf, its
/// weights are 0; if one logit is NaN or +inf, its weights are NaN. Nothing is written after a
/// list's last entry. The output has the same bits with and without weights. If each query head has
/// a list of its own (`scope`), only query heads can have weights.
struct DecodeAttention {
  KvShape shape;
  const float* query = nullptr;  ///< [query_heads, head_dim]
  float* output = nullptr;       ///< [query_heads, head_dim]
  BlockTable resident;           ///< device blocks of sinks and window
  TokenRange sinks;
  TokenRange window;  ///< the current token included
  ListScope scope = ListScope::kv_head;
  std::byte* const* selected = nullptr;           ///< [lists, selected_stride] rows, or null
  const std::uint32_t* selected_count = nullptr;  ///< [lists]
  std::size_t selected_stride = 0;
  const float* selected_bias = nullptr;  ///< [lists, selected_stride] or null
  PseudoEntries pseudo = {};
  /// If `rests.ids` is set, the op makes the pseudo-entries itself: the unselected rows of each
  /// group. The caller can then pass no pseudo-entries, no weights, no lists of query heads and no
  /// bias of rows.
  GroupRests rests = {};
  float scale = 1.0F;        ///< logits are scale * q.k + bias
  float* scratch = nullptr;  ///< attention_scratch_floats(shape, entries)
  /// Out: weights[list, entry]. The stride is not below the entries of any list.
  AttentionWeights weights = {};
  float* weights_scratch = nullptr;  ///< with weights: attention_weights_scratch_floats
};

inline constexpr std::size_t attention_split = 512;

/// Entries of the shortest pieces that a backend cuts a list into: a device takes many of them side
/// by side.
inline constexpr std::size_t attention_split_min = 128;

/// Returns the floats of scratch that attention over at most `entries` entries per head needs:
/// per query head and piece an output, a maximum and a sum. Rests take one piece more.
constexpr std::size_t attention_scratch_floats(const KvShape& shape, std::size_t entries) noexcept {
  const std::size_t pieces = divide_up(entries, attention_split_min) + 1;
  return shape.query_heads * pieces * (shape.head_dim + 2);
}

/// Returns the floats of DecodeAttention::weights_scratch, for weights of a stride of `stride`: per
/// query head a number for each entry and one for each 32 of them.
constexpr std::size_t attention_weights_scratch_floats(const KvShape& shape,
                                                       std::size_t stride) noexcept {
  return shape.query_heads * (stride + divide_up(stride, 32));
}

/// A context may be cut into tiles at multiples of this many rows, and no bit of an output changes.
/// The value is the smallest that keeps the threads of a device busy.
inline constexpr std::size_t tile_split = 128;

/// Exact attention of many query tokens over one tile of rows, with a running state: a long context
/// is attended to tile by tile, each tile's rows being device memory only while it is worked on.
///
/// A tile is cut from its beginning into pieces whose lengths divide `tile_split`. The pieces are
/// merged into the state in order: a piece and the state are scaled to the greater of their maxima.
/// A piece that no token sees, or whose logits are all -inf, has no weight and adds nothing.
/// Therefore the bits of a token's output depend neither on the other tokens of a call, nor on the
/// number of threads, nor on the lengths of tiles, if those are multiples of `tile_split`.
/// DecodeAttention gives other bits.
struct TileAttention {
  KvShape shape;
  const float* query = nullptr;  ///< [tokens, query_heads, head_dim], post-RoPE
  std::size_t query_stride = 0;  ///< floats from one token to the next
  std::size_t tokens = 0;
  BlockTable rows;  ///< device blocks; position 0 is the tile's first row
  std::size_t row_count = 0;
  /// Rows of the tile that token 0 sees, each further token seeing one more. Below 0 the tile
  /// begins with rows that come after token 0.
  std::ptrdiff_t seen = 0;
  /// In and out [tokens, query_heads, head_dim + 2]: a sum of weighted values, the greatest logit
  /// in units of the backend's own, the sum of weights.
  float* state = nullptr;
  bool first = false;             ///< `state` begins here: nothing of it is read
  float* output = nullptr;        ///< [tokens, query_heads, head_dim]; null = more tiles follow
  std::size_t output_stride = 0;  ///< floats from one token to the next
  float scale = 1.0F;             ///< logits are scale * q.k

  /// Returns how many rows of the tile token `token` sees, from the first on.
  [[nodiscard]] constexpr std::size_t rows_seen(std::size_t token) const noexcept {
    const std::ptrdiff_t count = seen + static_cast<std::ptrdiff_t>(token);
    if (count <= 0) return 0;
    const auto positive = static_cast<std::size_t>(count);
    return positive < row_count ? positive : row_count;
  }

  /// Returns where the state of a query head of a token is: [head_dim + 2].
  [[nodiscard]] constexpr float* state_of(std::size_t token,
                                          std::size_t query_head) const noexcept {
    return state + (token * shape.query_heads + query_head) * (shape.head_dim + 2);
  }
};

/// Returns the floats of TileAttention::state for `tokens` query tokens.
constexpr std::size_t tile_state_floats(const KvShape& shape, std::size_t tokens) noexcept {
  return tokens * shape.query_heads * (shape.head_dim + 2);
}

/// A second pass over a tile, after the last TileAttention of these query tokens: adds the weights
/// that the tokens gave to the tile's rows. After all tiles, `sums` has how much attention each row
/// got.
///
/// A row's weights are added to what is there one by one, token by token and in a token the query
/// heads of a list in their order. Therefore the bits of a sum depend neither on the other rows of
/// a tile, nor on the number of threads, nor on how the tokens are divided among calls that run in
/// their order. Tokens whose state has no weight add nothing; tokens with a logit of NaN or +inf
/// make the sums of the rows that they see NaN.
struct TileWeights {
  /// The arguments of TileAttention for this tile. Its `state` is only read here: the state of
  /// these tokens after the last tile, from the same backend. `first` and `output` are not used.
  TileAttention tile;
  AttentionWeights weights;      ///< in and out: row r is [list, first_column + r]
  std::size_t first_column = 0;  ///< with the rows of the tile not above the stride
};

}  // namespace terrace
