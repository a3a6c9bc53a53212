// Groups of alike tokens in pages: what a selection leaves of them, and selections by the signs of
// what they leave of keys. See terrace/core/ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops/selection.hpp"

namespace terrace {

/// Groups of tokens whose keys are alike, made page by page: a page is a run of `page_tokens`
/// tokens from the index's first on, and has `groups` groups. The means estimate the rest of a
/// group when some of its rows are attended to one by one. These parts follow the chunk's other
/// data, from chunk_begin on, for pages whose tokens are all indexed:
///   KV dtype [kv_heads, groups of a chunk, 2, head_dim]: the means of the keys, and of the values
///   u16 [kv_heads, groups of a chunk]: tokens of each; 0 = no such group
///   u8 [kv_heads, chunk_tokens]: the group of each token in its page, or `none`
struct GroupShape {
  static constexpr std::uint8_t none = 255;

  static constexpr std::size_t page_tokens_max = 256;

  std::size_t page_tokens = 64;  ///< divides chunk_tokens; at most page_tokens_max
  std::size_t groups = 2;        ///< of a page, 1 to 255
  std::size_t chunk_begin = 0;   ///< bytes, a multiple of 4
  bool operator==(const GroupShape&) const = default;
  /// Groups that an index of `tokens` tokens has.
  [[nodiscard]] constexpr std::size_t count(std::size_t tokens) const noexcept {
    return tokens / page_tokens * groups;
  }
  // Offsets of the parts of a KV head in a chunk, in bytes.
  [[nodiscard]] constexpr std::size_t means_at(const KvShape& shape, std::size_t chunk_tokens,
                                               std::size_t head) const noexcept {
    return chunk_begin + head * count(chunk_tokens) * shape.row_bytes();
  }
  [[nodiscard]] constexpr std::size_t sizes_at(const KvShape& shape, std::size_t chunk_tokens,
                                               std::size_t head) const noexcept {
    return means_at(shape, chunk_tokens, shape.kv_heads) +
           head * count(chunk_tokens) * sizeof(std::uint16_t);
  }
  [[nodiscard]] constexpr std::size_t labels_at(const KvShape& shape, std::size_t chunk_tokens,
                                                std::size_t head) const noexcept {
    return sizes_at(shape, chunk_tokens, shape.kv_heads) + head * chunk_tokens;
  }
  /// Bytes of a chunk that all of this takes.
  [[nodiscard]] constexpr std::size_t chunk_bytes(const KvShape& shape,
                                                  std::size_t chunk_tokens) const noexcept {
    return labels_at(shape, chunk_tokens, shape.kv_heads) - chunk_begin;
  }
};

/// The unselected rows of groups, as entries of attention: for each group of pages whose tokens are
/// all candidates, the mean of the rows that are not selected, with a logit bias of ln(their
/// number). If there are more than `most` groups, the ones with the largest weights get entries. If
/// a KV head has one query head, weights are the logits of the means with their bias; otherwise the
/// sum over query heads of each head's softmax over all groups. Ties go to the lower group; NaN and
/// groups whose rows are all selected rank last. The latter have no entry.
struct GroupRests {
  TokenRange candidates;
  GroupShape groups;
  IndexView index;
  const std::uint32_t* ids = nullptr;  ///< [kv_heads, selected_stride]: the rows' positions, rising
  std::size_t most = 0;                ///< entries of a KV head
  std::byte* means = nullptr;          ///< [kv_heads, pseudo.stride] rows, for means
  /// For entries; its stride is not below the number of groups. Out: `count`.
  PseudoTarget pseudo = {};
  float* scratch = nullptr;  ///< estimate_scratch_floats
  /// [kv_heads] host memory that the device reaches: out: `pseudo.count` once more; or null.
  std::uint32_t* counted = nullptr;

  /// The pages whose tokens are all candidates: numbers, counted from the index's first page.
  [[nodiscard]] constexpr TokenRange pages() const noexcept {
    if (candidates.empty()) return {};
    const std::size_t begin = divide_up(candidates.begin - index.first_token, groups.page_tokens);
    const std::size_t end = (candidates.end - index.first_token) / groups.page_tokens;
    return {begin, begin < end ? end : begin};
  }
};

/// Returns the floats of GroupRests::scratch for at most `candidates` of them: per KV head logits
/// of candidates and of groups, a number of each candidate, six of each group, and the groups'
/// tiles.
constexpr std::size_t estimate_scratch_floats(const KvShape& shape, const GroupShape& groups,
                                              std::size_t candidates) noexcept {
  const std::size_t most = groups.count(candidates) + 1;
  const std::size_t query_heads = shape.group();
  return shape.kv_heads *
         ((query_heads + 1) * align_up(candidates, 64) +
          (2 * query_heads + 5) * align_up(most, 64) + SelectionTiles::floats(shape, most));
}

/// Signs of the rest of each key, which is the key less the mean of its group as the index has it;
/// of a token of no group, the key. Let y = R rest, rotated (terrace/kernels/rotation.hpp), c the
/// signs of y, -1 or 1, and f = |y|^2 / (y . c). Then f (R q) . c estimates q . rest. Until all
/// tokens of a page are indexed, its tokens have no group. These parts follow the groups' data in a
/// chunk, from chunk_begin on:
///   bf16 [kv_heads, chunk_tokens]: f
///   u8 [kv_heads, pages of a chunk, quads(), page_tokens / 2]: four elements of two tokens a byte.
///      Bit i of token t: whether element 4 * quad + i is not negative. Tokens of the second half
///      of a page have the upper four bits
struct SignShape {
  GroupShape groups;            ///< page_tokens a multiple of 64
  std::size_t chunk_begin = 0;  ///< bytes, a multiple of 4
  bool operator==(const SignShape&) const = default;
  /// Groups of four elements of a key; the last one is filled up with zeros.
  [[nodiscard]] static constexpr std::size_t quads(const KvShape& shape) noexcept {
    return divide_up(shape.head_dim, std::size_t{4});
  }
  // Offsets of the parts of a KV head in a chunk, in bytes.
  [[nodiscard]] constexpr std::size_t factors_at(std::size_t chunk_tokens,
                                                 std::size_t head) const noexcept {
    return chunk_begin + head * chunk_tokens * sizeof(std::uint16_t);
  }
  [[nodiscard]] constexpr std::size_t signs_at(const KvShape& shape, std::size_t chunk_tokens,
                                               std::size_t head) const noexcept {
    return factors_at(chunk_tokens, shape.kv_heads) + head * quads(shape) * (chunk_tokens / 2);
  }
  /// Bytes of a chunk that all of this takes.
  [[nodiscard]] constexpr std::size_t chunk_bytes(const KvShape& shape,
                                                  std::size_t chunk_tokens) const noexcept {
    return signs_at(shape, chunk_tokens, shape.kv_heads) - chunk_begin;
  }
};

/// Top candidates by the score of the mean of their group and the signs of the rest. The rotated
/// query is rounded to whole numbers of at most sign_query_max times a unit. A query that is not
/// finite has no scores: all are NaN.
struct SignSelect {
  SelectCommon common;  ///< `held` is not used
  SignShape signs;
  IndexView index;
};

}  // namespace terrace
