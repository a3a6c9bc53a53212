// The kernels a decode step is made of, as a table that each backend fills.
// tidy-allow(length): a backend's writer reads one list of kernels with their arguments.
//
// An op is enqueued on a queue, for one call or a batch of them (terrace/core/op.hpp), and returns
// a ticket; arguments are copied, the memory they point to must stay valid until the ticket is
// done. Each struct is the arguments of one call. Pointers are device memory unless a line says
// otherwise; counts named `*_count` behind a pointer are read when the op runs. Memory that an op
// writes overlaps nothing else that the op is given: no op works in place. Memory that an op only
// reads may overlap. f32 arithmetic; ties go to the lower position. Ops but `fetch_rows`,
// `cache_rows` and `store_rows` touch device memory only. Positions are absolute token positions,
// from 0. Shapes and rows: terrace/core/shape.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/op.hpp"
#include "terrace/core/shape.hpp"

namespace terrace {

/// Positions [begin, end).
struct TokenRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool empty() const noexcept { return end == begin; }
  [[nodiscard]] constexpr bool contains(std::size_t position) const noexcept {
    return position >= begin && position < end;
  }
  bool operator==(const TokenRange&) const = default;
};

/// Where the blocks of a layer lie: position p, KV head h is row h * block_tokens + p %
/// block_tokens of block p / block_tokens. A null entry is not there.
struct BlockTable {
  std::byte* const* blocks = nullptr;  ///< [block_count]
  std::size_t block_tokens = 0;
};

/// Keys and values as an engine computes them: element (token, head, i) lies at
/// token * token_stride + head * head_stride + i * size of dtype, in bytes.
struct KvTensors {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  std::size_t token_stride = 0;
  std::size_t head_stride = 0;
};

/// Packs `tokens.size()` tokens of K and V into rows of blocks. On a table of host blocks this is a
/// transfer and its bytes are counted. No block written to may lie within the source, in the gaps
/// of its strides neither.
struct StoreRows {
  KvTensors source;  ///< token 0 of it goes to position tokens.begin
  TokenRange tokens;
  BlockTable target;  ///< the table itself is host memory; its blocks any tier
  KvShape shape;
  bool crosses_link = false;  ///< target blocks are host memory
};

/// Which lists a selection has under grouped-query attention.
enum class ListScope : std::uint8_t { kv_head, query_head };

/// Returns how many lists there are, and how many of them a KV head has.
constexpr std::size_t list_count(const KvShape& shape, ListScope scope) noexcept {
  return scope == ListScope::query_head ? shape.query_heads : shape.kv_heads;
}
constexpr std::size_t lists_per_kv_head(const KvShape& shape, ListScope scope) noexcept {
  return list_count(shape, scope) / shape.kv_heads;
}

/// How many rows the lists of each KV head take: all as many, or dealt out.
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

/// Product quantisation: head_dim is cut into `subspaces` equal parts, each with 2^bits centroids.
/// fixed: f32 [kv_heads, subspaces, 2^bits, head_dim / subspaces];
/// chunk: u8 [kv_heads, subspaces, chunk_tokens].
struct PqShape {
  std::size_t subspaces = 2;
  std::size_t bits = 6;
  bool operator==(const PqShape&) const = default;
  [[nodiscard]] constexpr std::size_t centroids() const noexcept { return std::size_t{1} << bits; }
};

/// Positions that are attended to in any case, so that a selection leaves them out. Those that are
/// no candidates change nothing.
struct HeldPositions {
  const std::uint32_t* positions = nullptr;  ///< [kv_heads, stride], rising; null = there are none
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
/// A candidate's weight is, of a group of one query head, its logit (score / sqrt(head_dim))
/// itself: the softmax keeps the order, and its underflow would make ties of what is none. There
/// NaN ranks below -inf. In larger groups a NaN logit counts as -inf and +inf as the largest float
/// before the heads are reduced, and a sum of logits is the largest float at most; a head all of
/// whose logits are -inf adds nothing.
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

/// Returns the floats of SelectCommon::scratch for at most `candidates` of them: [kv_heads,
/// group + 1, candidates rounded up to 64].
constexpr std::size_t selection_scratch_floats(const KvShape& shape,
                                               std::size_t candidates) noexcept {
  return shape.kv_heads * (shape.group() + 1) * align_up(candidates, 64);
}

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
  /// The index has no others, and says which: fixed: u32 [kv_heads, count], each below head_dim.
  /// Else it has all, in their order.
  bool partial = false;
  bool operator==(const ChannelShape&) const = default;
  /// Channels of a KV head that the index has.
  [[nodiscard]] constexpr std::size_t stored(const KvShape& shape) const noexcept {
    return partial ? count : shape.head_dim;
  }
};

/// Top candidates by the scores of some channels. In an index that has all, a KV head reads those
/// whose |q| is largest, summed over its query heads one after the other in f32; ties go to the
/// lower channel, a sum that is NaN is below all others. A logit is the score / sqrt(head_dim * s):
/// s is the share that the channels read have of the sum of the query's |q|, or 1 where they have
/// none. A query whose sum is not finite has no scores: all are NaN.
struct ChannelSelect {
  SelectCommon common;
  ChannelShape channels;
  IndexView index;
};

/// Takes queries into the space in which an index has its keys.
struct MapQueries {
  KvShape shape;
  const float* query = nullptr;  ///< [query_heads, head_dim]
  const float* maps = nullptr;   ///< [kv_heads, head_dim, head_dim]: row i is what element i adds
  float* mapped = nullptr;       ///< out [query_heads, head_dim]
};

/// Converts the numbers of queries to the f32 that ops compute with, or those of outputs, which
/// have the same shape, to what an engine takes. A narrowed number is rounded to the nearest,
/// ties to even; f16 has infinity for what it cannot hold, and NaN stays NaN. The bits of a number
/// are those of store_f32() of its load_f32() (terrace/core/dtype.hpp), whatever the types: equal
/// ones, too. Numbers are aligned to their size. Calls of a batch differ in all but the shape.
struct ConvertQueries {
  KvShape shape;                      ///< its dtype is not used
  const std::byte* source = nullptr;  ///< [tokens, query_heads, head_dim] of `from`
  Dtype from = Dtype::f32;
  std::size_t source_stride = 0;  ///< bytes from one token to the next; not used for one token
  std::byte* target = nullptr;    ///< out [tokens, query_heads, head_dim] of `to`
  Dtype to = Dtype::f32;
  std::size_t target_stride = 0;  ///< bytes from one token to the next; not used for one token
  std::size_t tokens = 0;
};

/// Clusters of keys. Each chunk has room for `slots` clusters of every KV head, whose members may
/// lie in any chunk; cluster `slot` of chunk c is number c * slots + slot. Per KV head a chunk
/// holds, in this order (terrace/kernels/cluster_plane.hpp):
///   centroids  KV dtype [slots, head_dim]; with `estimates` rows [slots, 2, head_dim]: the
///              mean key and the mean value
///   variance   f32 [slots], with `estimates`: mean (key - centroid)^2 over members and dimensions
///   sizes      u32 [slots]: members; 0 = no cluster
///   firsts     u32 [slots]: the first member, counted from the index's first token
///   labels     u32 [chunk_tokens]: the cluster of each token
/// An index is cut between clusters: all members of one are there, or none is.
struct ClusterShape {
  std::size_t chunk_tokens = 0;
  std::size_t slots = 0;
  bool estimates = false;
  bool operator==(const ClusterShape&) const = default;
};

/// By what clusters are ranked: a share of the softmax over all members, each standing at its
/// centroid, summed over the query heads of a list.
enum class ClusterRanking : std::uint8_t {
  token_weight,    ///< of one member: what a row of the budget buys
  cluster_weight,  ///< of all members together
};

/// Where entries that stand for clusters are written.
struct PseudoTarget {
  const std::byte** rows = nullptr;  ///< [lists, stride]: where rows lie, which stay there
  float* bias = nullptr;             ///< [lists, stride]
  std::uint32_t* count = nullptr;    ///< [lists]
  std::size_t stride = 0;
};

/// Pages: runs of `page_tokens` tokens from the index's first on, each with one vector that a query
/// is compared with. chunk: KV dtype [kv_heads, chunk_tokens / page_tokens, dims()].
struct PageShape {
  std::size_t page_tokens = 16;  ///< divides chunk_tokens
  /// Vectors are channel-wise maxima and behind them minima of a page's keys, [2, head_dim], and a
  /// score is the largest that a key within them could have; else a score is the product with the
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
/// group's page scores, weights and an order, and the group's queries.
constexpr std::size_t page_scratch_floats(const KvShape& shape, const PageShape& pages,
                                          std::size_t tokens) noexcept {
  const std::size_t row = align_up(tokens / pages.page_tokens + 2, 64);
  return shape.kv_heads * ((shape.group() + 2) * row + shape.group() * pages.dims(shape));
}

/// Codes of the rest of each key, by which proposed candidates are scored again. The rest is what
/// product quantisation leaves of a key or, in an index without codes of its own, the key less a
/// vector of its chunk. Let y = R rest, rotated (terrace/kernels/rotation.hpp): each element of y
/// becomes an odd number of `bits` bits, those are c, and f = |y|^2 / (y . c). Then f (R q) . c
/// estimates q . rest. Behind what a chunk of the index has itself, from chunk_begin on:
///   f32 [kv_heads, head_dim]: the vector; without product quantisation alone
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

/// Clusters too large for what is left of a budget are passed over so many times, then it stays.
inline constexpr std::size_t clusters_passed_over_max = 64;

/// Returns the clusters that an index of `tokens` tokens has room for.
constexpr std::size_t cluster_room(const ClusterShape& clusters, std::size_t tokens) noexcept {
  return divide_up(tokens, clusters.chunk_tokens) * clusters.slots;
}

/// Floats of one row of cluster scores: all clusters and a place for what is attended anyway.
constexpr std::size_t cluster_row_floats(const ClusterShape& clusters,
                                         std::size_t tokens) noexcept {
  return align_up(cluster_room(clusters, tokens) + 1, 64);
}

/// Returns the floats of SelectCommon::scratch for at most `tokens` in index.token_count. Per KV
/// head the host needs rows of the group's scores twice and weights, and of member counts, numbers,
/// ranks (two words each) and marks of the clusters; a device scores and for each list keys and
/// order, and counts and numbers.
constexpr std::size_t cluster_scratch_floats(const KvShape& shape, const ClusterShape& clusters,
                                             std::size_t tokens) noexcept {
  const std::size_t group = shape.group();
  const std::size_t rows = 2 * group + 6 > 3 * group + 2 ? 2 * group + 6 : 3 * group + 2;
  return shape.kv_heads * rows * cluster_row_floats(clusters, tokens);
}

/// Chooses clusters by falling rank until `common.count` candidates are reached, and lists their
/// members among the candidates, ascending. Only candidates count as members, so what is in the
/// window or was truncated is neither chosen nor estimated; a cluster without candidates does not
/// exist.
struct ClusterSelect {
  SelectCommon common;  ///< `reduction` is not used; scratch: cluster_scratch_floats
  ClusterShape clusters;
  IndexView index;
  ListScope scope = ListScope::kv_head;
  ClusterRanking ranking = ClusterRanking::token_weight;
  /// The last cluster is cut to fit, its lowest positions staying; else ones that do not fit are
  /// passed over for smaller ones of lower rank.
  bool trims = true;
  /// Clusters not chosen, best first: at most this many are estimated. Needs `estimates`, per KV
  /// head.
  std::size_t estimated = 0;
  PseudoTarget pseudo = {};
  /// Rows attended anyway. Given, they take part in each query head's normaliser.
  BlockTable resident = {};
  TokenRange sinks = {};
  TokenRange window = {};
  /// > 0: the selection stops as soon as every query head of a list has this share of attention
  /// mass, by what clusters are taken to weigh. Needs `resident`.
  double mass_wanted = 0;
  /// A cluster's members weigh exp(variance / 2) as much as its centroid: they would, if logits
  /// spread normally and keys alike in all directions. Else as much as the centroid, which is the
  /// least they can. Needs `estimates`.
  bool spreads = false;
};

/// A row to fetch: the op's own words between resolve_rows and fetch_rows.
struct MissedRow {
  std::uint32_t position = 0;
  std::uint32_t head = 0;
  std::byte* target = nullptr;
};

/// Rows in device memory without their block: those of clusters that a cache keeps. Row number n
/// lies in block n / block_rows.
struct CachedRows {
  std::uint32_t* numbers = nullptr;  ///< [positions, kv_heads]: 1 + number, 0 = not there; null =
                                     ///< no row is there
  std::byte* const* blocks = nullptr;
  std::size_t block_rows = 0;
};

/// Finds each selected row: in its device block or among the cached rows if it is there, else in a
/// staging row it is given. A row that several query heads of a group want is missed once.
///
/// For that `seen` and `seen_epoch` are memory of the op's own between calls, which the caller
/// keeps, zeroes once, and never writes again: seen_epoch is how many misses all earlier calls had,
/// and the entry of a row is the number, counted from 1 over all calls, of its last miss. So
/// entries greater than seen_epoch are of the call that is running, and nothing is cleared between
/// calls. When the numbers near 2^32 the op zeroes both itself. One pair per layer or one for all,
/// but one call at a time: calls of one batch have each a pair of their own.
struct ResolveRows {
  KvShape shape;
  ListScope scope = ListScope::kv_head;
  const std::uint32_t* ids = nullptr;       ///< [lists, id_stride]
  const std::uint32_t* id_count = nullptr;  ///< [lists]
  std::size_t id_stride = 0;
  BlockTable resident;  ///< device blocks; null = on the host only
  CachedRows cached = {};
  std::byte* staging = nullptr;           ///< [lists * id_stride] rows
  std::byte** rows = nullptr;             ///< out [lists, id_stride]
  MissedRow* missed = nullptr;            ///< out [lists * id_stride]
  std::uint32_t* missed_count = nullptr;  ///< out [1]
  std::uint32_t* seen = nullptr;  ///< query_head scope only: [kv_heads, positions], zeroed once,
  std::uint32_t* seen_epoch = nullptr;  ///< and [1], kept between calls
  std::size_t seen_stride = 0;
};

/// Copies missed rows from host blocks to their staging rows. A transfer; its bytes are counted.
struct FetchRows {
  KvShape shape;
  const MissedRow* missed = nullptr;
  const std::uint32_t* missed_count = nullptr;
  BlockTable source;  ///< host blocks; the table itself is pinned host memory
};

/// A row that becomes a cached one, or no longer is.
struct CachedRowChange {
  std::uint32_t position = 0;
  std::uint32_t head = 0;
  std::uint32_t number = 0;  ///< as CachedRows::numbers has it
  std::uint32_t staged = 0;  ///< 1 + the staging row that has it already; 0 = it is on the host
};

/// Copies rows from staging rows or host blocks to their places among cached rows and notes where
/// they are; those that leave are noted as gone. Rows that come from the host are a transfer, whose
/// bytes are counted.
struct CacheRows {
  KvShape shape;
  const CachedRowChange* changes = nullptr;  ///< host memory, [count]; a row is named once
  std::size_t count = 0;
  BlockTable source;  ///< host blocks; the table itself is pinned host memory
  const std::byte* staging = nullptr;
  CachedRows target;
};

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
/// The list of entries is cut at multiples of `attention_split`; each piece is an online softmax of
/// its own, and the pieces are merged in order. So the bits of the output depend neither on
/// where a row lies nor on the number of threads.
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

/// Exact attention of many query tokens over one tile of rows, with a running state: a long context
/// is attended to tile by tile, each tile's rows being device memory only while it is worked on.
///
/// A tile is cut at multiples of `attention_split` rows from its begin; each piece is an online
/// softmax of its own, as in DecodeAttention, and is merged into the state in order: both are taken
/// to the greater of their maxima. A piece without weight, which is one of which nothing is seen or
/// all logits are -inf, adds nothing. So the bits of a token's output depend neither on the other
/// tokens of a call, nor on the number of threads, nor on the lengths of tiles, if those are
/// multiples of `attention_split`.
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
  std::size_t token_begin = 0;   ///< tokens [token_begin, tile.tokens) are summed over
  AttentionWeights weights;      ///< in and out: row r is [list, first_column + r]
  std::size_t first_column = 0;  ///< with the rows of the tile not above the stride
};

/// The kernels of a backend. An absent (null) entry means unsupported: ask before choosing.
struct Ops {
  Op<StoreRows> store_rows = {};
  Op<PqSelect> pq_select = {};
  Op<ExactSelect> exact_select = {};
  Op<ChannelSelect> channel_select = {};
  Op<MapQueries> map_queries = {};
  Op<ConvertQueries> convert_queries = {};
  Op<PageSelect> page_select = {};
  Op<ClusterSelect> cluster_select = {};
  Op<RefineSelect> refine_select = {};
  Op<SignSelect> sign_select = {};
  Op<ResolveRows> resolve_rows = {};
  Op<FetchRows> fetch_rows = {};
  Op<CacheRows> cache_rows = {};
  Op<DecodeAttention> decode_attention = {};
  Op<TileAttention> tile_attention = {};
  Op<TileWeights> tile_weights = {};
};

}  // namespace terrace
