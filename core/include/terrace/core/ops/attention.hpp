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

/// Where the weights of a softmax go, for those who choose by them. Lists are those of `scope`: a
/// KV head's has the sums over the query heads of its group, in their order.
struct AttentionWeights {
  ListScope scope = ListScope::kv_head;
  float* sums = nullptr;   ///< [lists, stride]; null = nobody wants weights
  std::size_t stride = 0;  ///< floats from one list to the next
};

/// Attention of one query token over sinks | window | selected | pseudo-entries, in this order.
///
/// The list of entries is cut at multiples of `attention_split`, by CUDA of `attention_split_min`;
/// each piece is an online softmax of its own, and the pieces are merged in order. So the bits of
/// the output depend neither on where a row lies nor on the number of threads.
///
/// With `weights.sums` the weight of each entry is written, too, in the order of the entries: those
/// of a query head add up to 1, up to rounding. A head all of whose logits are -inf has weights of
/// 0; one with a logit of NaN or +inf, weights of NaN. Behind a list's last entry nothing is
/// written. The output has the same bits with and without weights. Where each query head has a list
/// of its own (`scope`), only query heads can have weights.
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
  /// With `rests.ids`: the pseudo-entries are what the selected rows leave of groups. None can be
  /// given then, nor weights asked for, nor lists of query heads or a bias of rows.
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

/// Rows at whose multiples a context may be cut into tiles without another bit in the outputs: the
/// least that keeps the threads of a device busy.
inline constexpr std::size_t tile_split = 128;

/// Exact attention of many query tokens over one tile of rows, with a running state: a long context
/// is attended to tile by tile, each tile's rows being device memory only while it is worked on.
///
/// A tile is cut into pieces, from its begin, whose lengths divide `tile_split`. They are merged
/// into the state in order: a piece and the state are taken to the greater of their maxima. A piece
/// that no token sees, or whose logits are all -inf, has no weight and adds nothing. So
/// the bits of a token's output depend neither on the other tokens of a call, nor on the number of
/// threads, nor on the lengths of tiles, if those are multiples of `tile_split`. They are not those
/// of DecodeAttention.
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

/// A second pass over a tile, behind the last TileAttention of these query tokens: adds the weights
/// that the tokens gave to the tile's rows, so that `sums` has, once all tiles are through, how
/// much attention each row got.
///
/// A row's weights are added to what is there one by one, token by token and in a token the query
/// heads of a list in their order. So the bits of a sum depend neither on the other rows of a tile,
/// nor on the number of threads, nor on how the tokens are dealt out over calls that run in their
/// order. Tokens whose state has no weight add nothing; those with a logit of NaN or +inf make the
/// sums of the rows that they see NaN.
struct TileWeights {
  /// As it was attended to. Its `state`, which is now only read, is that of these tokens once the
  /// last tile is attended to, by the same backend; `first` and `output` are not used.
  TileAttention tile;
  AttentionWeights weights;      ///< in and out: row r is [list, first_column + r]
  std::size_t first_column = 0;  ///< with the rows of the tile not above the stride
};

}  // namespace terrace
