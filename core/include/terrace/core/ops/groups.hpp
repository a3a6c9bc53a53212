// Groups of alike tokens in pages: what a selection leaves of them, and selections by the signs of
// what they leave of keys. See terrace/core/ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops/selection.hpp"

namespace terrace {

/// Groups of tokens whose keys are alike, made page by page: a page is a run of `page_tokens`
/// tokens from the index's first on, and has `groups` groups. Their means say what is left of a
/// group once some of its rows are attended to one by one. Behind what a chunk of the index has
/// itself, from chunk_begin on, of pages all of whose tokens are indexed:
///   KV dtype [kv_heads, groups of a chunk, 2, head_dim]: the means of the keys, and of the values
///   u16 [kv_heads, groups of a chunk]: tokens of each; 0 = there is no such group
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
  // Where the parts of a KV head lie in a chunk, in bytes.
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

/// The rests that a selection leaves of groups, as entries of attention: for each group of pages
/// all of whose tokens are candidates, the mean of the rows that are not selected, with a logit
/// bias of ln(their number). Where there are more than `most` groups, those with the largest
/// weights count. Weights are, with one query head a KV head, the logits of the means with their
/// bias, else the softmax of each query head over all groups, summed; ties go to the lower group,
/// NaN and groups of which nothing is left rank last. The latter have no entry.
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

  /// The pages all of whose tokens are candidates: numbers, from the index's first on.
  [[nodiscard]] constexpr TokenRange pages() const noexcept {
    if (candidates.empty()) return {};
    const std::size_t begin = divide_up(candidates.begin - index.first_token, groups.page_tokens);
    const std::size_t end = (candidates.end - index.first_token) / groups.page_tokens;
    return {begin, begin < end ? end : begin};
  }
};

/// Returns the floats of GroupRests::scratch for at most `candidates` of them: per KV head logits
/// of candidates and of groups, a number of each candidate and six of each group.
constexpr std::size_t estimate_scratch_floats(const KvShape& shape, const GroupShape& groups,
                                              std::size_t candidates) noexcept {
  const std::size_t of_group = align_up(groups.count(candidates) + 1, 64);
  const std::size_t query_heads = shape.group();
  return shape.kv_heads *
         ((query_heads + 1) * align_up(candidates, 64) + (2 * query_heads + 5) * of_group);
}

/// Signs of the rest of each key, which is the key less the mean of its group as the index has it;
/// of a token of no group, the key. Let y = R rest, rotated (terrace/kernels/rotation.hpp), c the
/// signs of y, -1 or 1, and f = |y|^2 / (y . c). Then f (R q) . c estimates q . rest. As long as
/// not all tokens of a page are indexed, those that are have no group. Behind what groups have in a
/// chunk, from chunk_begin on:
///   bf16 [kv_heads, chunk_tokens]: f
///   u8 [kv_heads, pages of a chunk, quads(), page_tokens / 2]: four elements of two tokens a byte.
///      Bit i of token t: whether element 4 * quad + i is not negative. Tokens of the second half
///      of a page have the upper four bits
struct SignShape {
  GroupShape groups;            ///< page_tokens a multiple of 64
  std::size_t chunk_begin = 0;  ///< bytes, a multiple of 4
  bool operator==(const SignShape&) const = default;
  /// Fours of elements of a key, the last with zeros behind its end.
  [[nodiscard]] static constexpr std::size_t quads(const KvShape& shape) noexcept {
    return divide_up(shape.head_dim, std::size_t{4});
  }
  // Where the parts of a KV head lie in a chunk, in bytes.
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
