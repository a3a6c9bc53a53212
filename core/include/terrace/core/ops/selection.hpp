// Selections of tokens by scores of candidates one by one, or of pages of them. See
// terrace/core/ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops/rows.hpp"

namespace terrace {

/// How many rows the lists of each KV head take: the same number for all, or shares by head.
struct RowCounts {
  std::size_t mean = 0;  ///< rows of a list, over KV heads
  /// [kv_heads]: the heads' parts of `mean`, summed up to each head, in 1/head_share_one; the last
  /// is kv_heads * head_share_one. Null = all alike.
  const std::uint32_t* shares = nullptr;
};

inline constexpr std::uint64_t head_share_one = 1 << 16;

/// Returns the rows of a list of KV head `head`. Over all KV heads they add up to mean * kv_heads.
constexpr std::size_t rows_of_head(const RowCounts& counts, std::size_t head) noexcept {
  if (counts.shares == nullptr) return counts.mean;
  const std::uint64_t begin = head == 0 ? 0 : counts.shares[head - 1];
  return counts.mean * counts.shares[head] / head_share_one - counts.mean * begin / head_share_one;
}

/// How scores of a group's query heads become one weight per KV head.
enum class GroupReduction : std::uint8_t { sum_softmax, max_softmax, sum_logits };

/// An index of a layer as ops see it. `fixed` and each chunk are laid out by the policy that owns
/// them; chunk c holds tokens first_token + [c * chunk_tokens, (c + 1) * chunk_tokens).
struct IndexView {
  const std::byte* fixed = nullptr;
  std::byte* const* chunks = nullptr;  ///< [chunk_count]
  std::size_t chunk_tokens = 0;
  std::size_t first_token = 0;
  std::size_t token_count = 0;  ///< coded so far, from first_token on
};

/// Positions that are attended to in any case, so that a selection leaves them out. Positions that
/// are not candidates are ignored.
struct HeldPositions {
  const std::uint32_t* positions = nullptr;  ///< [kv_heads, stride], rising; null = no positions
  const std::uint32_t* count = nullptr;      ///< [kv_heads]
  std::size_t stride = 0;

  /// The candidates of KV head `head` that are held: elements of `positions`.
  [[nodiscard]] constexpr TokenRange among(TokenRange candidates, std::size_t head) const noexcept {
    if (positions == nullptr) return {};
    return {first_from(candidates.begin, head), first_from(candidates.end, head)};
  }

 private:
  /// The first element of KV head `head` that is not below `position`.
  [[nodiscard]] constexpr std::size_t first_from(std::size_t position,
                                                 std::size_t head) const noexcept {
    std::size_t low = head * stride;
    std::size_t high = low + count[head];
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      positions[middle] < position ? low = middle + 1 : high = middle;
    }
    return low;
  }
};

/// Arguments that all selecting ops have.
///
/// In a group of one query head, a candidate's weight is its logit (score / sqrt(head_dim)): the
/// softmax keeps the order, and its underflow would make ties of different weights. Here NaN ranks
/// below -inf. In larger groups a NaN logit counts as -inf and +inf as the largest float before the
/// heads are reduced, and a sum of logits is the largest float at most; a head whose logits are all
/// -inf adds nothing.
struct SelectCommon {
  KvShape shape;
  const float* query = nullptr;  ///< [query_heads, head_dim], post-RoPE
  TokenRange candidates;
  RowCounts count;  ///< wanted per KV head; fewer when there are fewer candidates
  GroupReduction reduction =
      GroupReduction::sum_softmax;    ///< softmax over the candidates, 1/sqrt(d)
  std::uint32_t* ids = nullptr;       ///< out [kv_heads, id_stride]: positions, ascending
  std::uint32_t* id_count = nullptr;  ///< out [kv_heads]
  std::size_t id_stride = 0;
  float* scratch = nullptr;  ///< selection_scratch_floats, where an op names no other
  /// Read by pq_select, exact_select and channel_select alone; their weights are made of the other
  /// candidates.
  HeldPositions held = {};

  /// Rows that a list of KV head `head` can have.
  [[nodiscard]] constexpr std::size_t wanted(std::size_t head) const noexcept {
    const std::size_t rows = rows_of_head(count, head);
    const std::size_t free = candidates.size() - held.among(candidates, head).size();
    const std::size_t room = free < id_stride ? free : id_stride;
    return rows < room ? rows : room;
  }
};

/// How a device shares out the candidates of a KV head, or what else it gives weights to: in tiles
/// of equal size, but for the last, that blocks of threads rank side by side. The tiles are enough
/// to keep many processors busy, and so few that adding up what they counted is little work.
struct SelectionTiles {
  static constexpr std::size_t most = 16;
  static constexpr std::size_t size_min = 2048;
  static constexpr std::size_t counts = 2048;  ///< of a tile: candidates by the digit they rank by

  std::size_t size = size_min;
  std::size_t count = 0;

  [[nodiscard]] static constexpr SelectionTiles of(std::size_t candidates) noexcept {
    const std::size_t even = align_up(divide_up(candidates, most), 64);
    const std::size_t size = even < size_min ? size_min : even;
    return {size, divide_up(candidates, size)};
  }

  /// Returns the floats of scratch that the tiles of a KV head take, for at most `candidates`: two
  /// sums of each query head, the place of their chosen candidates, and counts where there are
  /// several; and what they have in common.
  [[nodiscard]] static constexpr std::size_t floats(const KvShape& shape,
                                                    std::size_t candidates) noexcept {
    const std::size_t of_least_size = divide_up(candidates, size_min);
    const std::size_t tiles = of_least_size < most ? of_least_size : most;
    return align_up(2 + tiles * (2 * shape.group() + 2 + (tiles > 1 ? counts : 0)), 64);
  }
};

/// Returns the floats of SelectCommon::scratch for at most `candidates` of them: [kv_heads,
/// group + 1, candidates rounded up to 64], then [kv_heads, those of tiles].
constexpr std::size_t selection_scratch_floats(const KvShape& shape,
                                               std::size_t candidates) noexcept {
  return shape.kv_heads * ((shape.group() + 1) * align_up(candidates, 64) +
                           SelectionTiles::floats(shape, candidates));
}

/// Product quantisation: head_dim is cut into `subspaces` equal parts, each with 2^bits centroids.
/// fixed: f32 [kv_heads, subspaces, 2^bits, head_dim / subspaces];
/// chunk: u8 [kv_heads, subspaces, chunk_tokens].
struct PqShape {
  std::size_t subspaces = 2;
  std::size_t bits = 6;
  bool operator==(const PqShape&) const = default;
  [[nodiscard]] constexpr std::size_t centroids() const noexcept { return std::size_t{1} << bits; }
};

/// Top `count` candidates of each KV head by approximate scores from codes.
struct PqSelect {
  SelectCommon common;
  PqShape pq;
  IndexView index;
};

/// Top `count` candidates by exact scores. chunk: keys in the KV dtype [kv_heads, chunk_tokens,
/// head_dim].
struct ExactSelect {
  SelectCommon common;
  IndexView index;
};

/// Channels of keys, which are their elements, each beside that of the next token. chunk: KV dtype
/// [kv_heads, stored(), chunk_tokens].
struct ChannelShape {
  std::size_t count = 0;  ///< that are read of each KV head
  /// True: the index has only these channels, and lists them: fixed: u32 [kv_heads, count], each
  /// below head_dim. False: the index has all channels, in their order.
  bool partial = false;
  bool operator==(const ChannelShape&) const = default;
  /// Channels of a KV head that the index has.
  [[nodiscard]] constexpr std::size_t stored(const KvShape& shape) const noexcept {
    return partial ? count : shape.head_dim;
  }
};

/// Top candidates by the scores of some channels. In an index with all channels, a KV head reads
/// the ones with the largest |q|, summed over its query heads one after the other in f32; ties go
/// to the lower channel, a sum that is NaN is below all others. A logit is the score /
/// sqrt(head_dim * s): s is the share of the read channels in the sum of the query's |q|, or 1 if
/// that share is 0. If the sum is not finite, all scores of the query are NaN.
struct ChannelSelect {
  SelectCommon common;
  ChannelShape channels;
  IndexView index;
};

/// Pages: runs of `page_tokens` tokens from the index's first on, each with one vector that a query
/// is compared with. chunk: KV dtype [kv_heads, chunk_tokens / page_tokens, dims()].
struct PageShape {
  std::size_t page_tokens = 16;  ///< divides chunk_tokens
  /// True: vectors are channel-wise maxima, then minima of a page's keys, [2, head_dim], and a
  /// score is the largest that a key within them could have. False: a score is the product with the
  /// vector.
  bool bounds = false;
  bool operator==(const PageShape&) const = default;
  [[nodiscard]] constexpr std::size_t dims(const KvShape& shape) const noexcept {
    return bounds ? 2 * shape.head_dim : shape.head_dim;
  }
};

/// Chooses pages by falling weight until `common.count` candidates are reached, the last page cut
/// to its lowest positions, and lists their candidates. Weights: page scores reduced over the group
/// as common.reduction says, softmax being over the pages that have candidates.
struct PageSelect {
  SelectCommon common;  ///< scratch: page_scratch_floats
  PageShape pages;
  IndexView index;
};

/// Returns the floats of SelectCommon::scratch for at most `tokens` candidates: per KV head the
/// group's page scores, weights and an order, the group's queries, and the tiles of pages.
constexpr std::size_t page_scratch_floats(const KvShape& shape, const PageShape& pages,
                                          std::size_t tokens) noexcept {
  const std::size_t most = tokens / pages.page_tokens + 2;
  return shape.kv_heads * ((shape.group() + 2) * align_up(most, 64) +
                           shape.group() * pages.dims(shape) + SelectionTiles::floats(shape, most));
}

/// Codes of the rest of each key, by which proposed candidates are scored again. The rest is what
/// product quantisation leaves of a key or, in an index without codes of its own, the key less a
/// vector of its chunk. Let y = R rest, rotated (terrace/kernels/rotation.hpp): each element of y
/// becomes an odd number of `bits` bits, those are c, and f = |y|^2 / (y . c). Then f (R q) . c
/// estimates q . rest. These parts follow the chunk's other data, from chunk_begin on:
///   f32 [kv_heads, head_dim]: the vector; absent if the index has product quantisation
///   bf16 [kv_heads, chunk_tokens]: f
///   u8 [kv_heads, chunk_tokens, code_bytes]: (c + 2^bits - 1) / 2, that of element i in byte
///      i % code_bytes from bit i / code_bytes * bits on
struct RefineShape {
  std::size_t bits = 2;           ///< 1 or 2
  PqShape pq = {.subspaces = 0};  ///< of the index; no sub-spaces = it has no codes
  std::size_t chunk_begin = 0;    ///< bytes, a multiple of 4
  bool operator==(const RefineShape&) const = default;
  /// Bytes of a token's code.
  [[nodiscard]] constexpr std::size_t code_bytes(const KvShape& shape) const noexcept {
    return divide_up(shape.head_dim * bits, std::size_t{8});
  }
  /// Bytes of a chunk's vectors.
  [[nodiscard]] constexpr std::size_t vector_bytes(const KvShape& shape) const noexcept {
    return pq.subspaces > 0 ? 0 : shape.kv_heads * shape.head_dim * sizeof(float);
  }
  /// Bytes of a chunk that all of this takes.
  [[nodiscard]] constexpr std::size_t chunk_bytes(const KvShape& shape,
                                                  std::size_t chunk_tokens) const noexcept {
    return vector_bytes(shape) +
           shape.kv_heads * chunk_tokens * (sizeof(std::uint16_t) + code_bytes(shape));
  }
};

/// Chooses by refined scores among candidates that another selection proposed, at least as many as
/// are wanted: of fewer all. Scores are those of `pq`, or of the chunk's vector, and the estimate
/// of the rest. A query that is not finite has no scores: all are NaN.
struct RefineSelect {
  /// `query` is in the space that the index has keys in; `held` is not used, and the softmax is
  /// over what is proposed. scratch: refine_scratch_floats.
  SelectCommon common;
  RefineShape codes;
  IndexView index;
  const std::uint32_t* proposed = nullptr;  ///< [kv_heads, proposed_stride]: candidates, rising
  const std::uint32_t* proposed_count = nullptr;  ///< [kv_heads]
  std::size_t proposed_stride = 0;
};

/// Returns the floats of RefineSelect's scratch for at most `proposed` candidates of each KV head.
constexpr std::size_t refine_scratch_floats(const KvShape& shape, std::size_t proposed) noexcept {
  return selection_scratch_floats(shape, proposed);
}

/// The target of entries that stand for clusters.
struct PseudoTarget {
  const std::byte** rows = nullptr;  ///< [lists, stride]: where rows lie, which stay there
  float* bias = nullptr;             ///< [lists, stride]
  std::uint32_t* count = nullptr;    ///< [lists]
  std::size_t stride = 0;
};

}  // namespace terrace
