// The decision of a retention policy: which entries of a layer stay, which are merged, and which
// are dropped for good.
//
// Attention visits *entries*: rows of a KV head. An entry stands for one token or, merged, for
// several; their number is its *degree*. A policy owns no memory and moves no row. After a prompt,
// and each time the window gives up its older half (a *flush*, or compression pass), Runtime gives
// the policy the entries of the middle and of the tokens that left the window, and the policy
// decides about each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"

namespace terrace {

/// The queries that give the attention weights by which a policy chooses.
enum class ScoredQueries : std::uint8_t {
  none,  ///< the policy uses no weights, and none are computed
  last,  ///< those of the last RetentionTraits::score_window positions before a flush
  all,   ///< those of every position since the entry was there
};

/// The needs of a policy, and what it gives; read before it is chosen.
struct RetentionTraits {
  std::string_view name = {};
  ScoredQueries scores = ScoredQueries::none;
  std::size_t score_window = 0;        ///< of ScoredQueries::last
  bool scores_of_query_heads = false;  ///< apart; else they are summed over the group
  bool needs_pre_rope_keys = false;    ///< RetentionPolicy::rate makes the scores, of new tokens
  bool merges = false;                 ///< attention adds ln(degree) to an entry's logit
  /// Only the first flush has scores: tokens that leave the window later have no score.
  bool chooses_once = false;

  /// Heads that have scores of their own.
  [[nodiscard]] constexpr std::size_t score_heads(const KvShape& shape) const noexcept {
    return scores_of_query_heads ? shape.query_heads : shape.kv_heads;
  }
};

/// The entries of one KV head among which a policy chooses. Host memory, all [entries], by rising
/// position.
struct Candidates {
  std::span<const std::byte* const> rows = {};    ///< key, then value, KV dtype
  std::span<const std::uint32_t> positions = {};  ///< of the last token that the entry stands for
  std::span<const std::uint32_t> degrees = {};    ///< tokens that the entry stands for
  std::size_t keep = 0;                           ///< entries that may stay

  [[nodiscard]] std::size_t size() const noexcept { return positions.size(); }
};

/// Chooses among the entries of one layer.
struct RetainRequest {
  KvShape shape = {};
  LayerId layer = {};
  std::span<const Candidates> heads = {};  ///< [kv_heads]; heads may have kept different tokens
  /// [kv_heads, length], or [query_heads, length]: of each position its attention weights, summed
  /// over the queries that the traits name, or the policy's own rating. An entry that was dropped
  /// keeps what it had: pooling looks at neighbours. Empty where the traits ask for nothing.
  std::span<const float> scores = {};
  std::size_t length = 0;  ///< tokens of the sequence
  bool decoding = false;   ///< else a prompt has ended
  std::uint64_t seed = 0;
};

/// The KV head whose number of entries is asked for.
struct KeepRequest {
  KvShape shape = {};
  LayerId layer = {};
  HeadId head = {};
  std::size_t mean = 0;    ///< entries of a KV head that may stay, over all layers and KV heads
  std::size_t tokens = 0;  ///< candidates of the first flush, at most
};

/// Tokens of a layer that a policy rates when they come. Host memory.
struct RateRequest {
  KvShape shape = {};
  LayerId layer = {};
  std::span<const float> keys = {};  ///< [tokens, kv_heads, head_dim], before RoPE
  std::span<float> ratings = {};     ///< out [kv_heads, tokens]: RetainRequest::scores of them
};

/// The value of a candidate that is dropped, times `factor`, is added to those of new entries.
/// Their keys and degrees stay unchanged.
struct ValueGift {
  std::uint32_t candidate = 0;
  std::uint32_t first = 0;  ///< new entry
  std::uint32_t count = 0;  ///< new entries from there on
  float factor = 0;

  bool operator==(const ValueGift&) const = default;
};

/// The new entries of a KV head's candidates. Each candidate becomes part of one new entry, or is
/// dropped. New entries are numbered by the position of their last token. The candidates that are
/// not dropped keep their sums of degrees, and of keys and values weighted by degrees. Gifts come
/// on top.
struct EntryMap {
  static constexpr std::uint32_t dropped = std::numeric_limits<std::uint32_t>::max();

  std::vector<std::uint32_t> target;  ///< [candidates]: the number of the new entry, or `dropped`
  std::size_t entries = 0;            ///< new ones
  std::vector<ValueGift> gifts = {};  ///< added in this order

  bool operator==(const EntryMap&) const = default;
};

/// Threads  any, at once; a policy has no mutable state
class RetentionPolicy {
 public:
  RetentionPolicy() = default;
  RetentionPolicy(const RetentionPolicy&) = delete;
  RetentionPolicy& operator=(const RetentionPolicy&) = delete;
  virtual ~RetentionPolicy() = default;

  [[nodiscard]] virtual const RetentionTraits& traits() const noexcept = 0;

  /// Returns how many entries of a KV head may stay: `mean` in the mean over all, within rounding.
  /// Heads that get more than that get no fewer for more tokens.
  [[nodiscard]] virtual std::size_t keep_of(const KeepRequest& request) const noexcept {
    return request.mean;
  }

  /// Rates tokens, any number of them: a token's rating does not depend on which others come with
  /// it. Ratings stay constant for a token's life.
  ///
  /// Errors   unsupported: the traits do not ask for keys before RoPE; invalid_argument: sizes that
  ///          do not fit each other, or the policy's model; then no rating is written
  [[nodiscard]] Status rate(const RateRequest& request, Parallel& threads) const;

  /// Returns a map for each KV head, of at most Candidates::keep entries. If there are no more
  /// candidates than that, all stay unchanged. Errors: invalid_argument: a request that lacks what
  /// the traits ask for.
  [[nodiscard]] Result<std::vector<EntryMap>> retain(const RetainRequest& request) const;

 private:
  /// Answers a complete request. A head needs no map if all its candidates may stay.
  [[nodiscard]] virtual std::vector<EntryMap> do_retain(const RetainRequest& request) const = 0;

  /// Rates the tokens of a request with consistent sizes. Policies without ratings are not asked.
  [[nodiscard]] virtual Status do_rate(const RateRequest& /*request*/,
                                       Parallel& /*threads*/) const {
    return {};
  }
};

/// Returns the map that keeps all candidates unchanged.
[[nodiscard]] EntryMap keep_all(std::size_t candidates);

}  // namespace terrace
