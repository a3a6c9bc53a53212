#include "decision.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <new>
#include <numeric>

#include "terrace/kernels/retained_rows.hpp"

namespace terrace {
namespace {

/// The candidates of a KV head.
struct HeadCandidates {
  std::vector<const std::byte*> rows;
  std::vector<std::uint32_t> positions;
  std::vector<std::uint32_t> degrees;
  std::vector<std::uint8_t> gifted;

  [[nodiscard]] Candidates view(std::size_t keep) const noexcept {
    return {rows, positions, degrees, keep};
  }
};

/// The gifts to a KV head's new entries, in f32: rows are rounded once.
class GiftSums {
 public:
  GiftSums(const KvShape& shape, std::size_t entries)
      : shape_(shape), sums_(entries * shape.head_dim), gifted_(entries) {}

  /// Adds a gift, the value of `row`.
  void add(const ValueGift& gift, const std::byte* row) {
    const std::size_t dims = shape_.head_dim;
    std::vector<float> part(dims);
    for (std::size_t i = 0; i < dims; ++i) {
      part[i] = gift.factor * load_f32(row, shape_.dtype, dims + i);
    }
    for (std::size_t entry = gift.first; entry < gift.first + gift.count; ++entry) {
      float* const sums = sums_.data() + entry * dims;
      std::transform(part.begin(), part.end(), sums, sums, std::plus{});
      gifted_[entry] = 1;
    }
  }
  [[nodiscard]] bool has(std::size_t entry) const noexcept { return gifted_[entry] != 0; }
  /// Adds an entry's gifts to its row.
  void add_to(std::byte* row, std::size_t entry) const {
    const std::size_t dims = shape_.head_dim;
    for (std::size_t i = 0; i < dims; ++i) {
      const float own = load_f32(row, shape_.dtype, dims + i);
      store_f32(row, shape_.dtype, dims + i, own + sums_[entry * dims + i]);
    }
  }

 private:
  KvShape shape_;
  std::vector<float> sums_;  ///< [entries, head_dim]
  std::vector<std::uint8_t> gifted_;
};

class Decision {
 public:
  Decision(const RetentionPolicy& policy, const Flush& flush, DecisionParts parts) noexcept
      : policy_(policy), flush_(flush), entries_(parts.entries), stored_scores_(parts.scores) {}

  Result<FlushCount> make() {
    for (std::size_t head = 0; head < flush_.shape.kv_heads; ++head) list_candidates(head);
    TERRACE_ASSIGN(const std::vector<EntryMap> maps, choose());
    FlushCount count;
    for (std::size_t head = 0; head < maps.size(); ++head) carry_out(head, maps[head], count);
    return count;
  }

 private:
  [[nodiscard]] bool is_first() const noexcept { return entries_.now().heads.empty(); }

  [[nodiscard]] const std::byte* row(std::size_t head, std::size_t position) const noexcept {
    const std::size_t in_block = head * flush_.block_tokens + position % flush_.block_tokens;
    return flush_.blocks[position / flush_.block_tokens] + in_block * flush_.shape.row_bytes();
  }

  void list_rows(std::size_t head, TokenRange tokens, std::vector<const std::byte*>& rows) const {
    for (std::size_t p = tokens.begin; p < tokens.end; ++p) rows.push_back(row(head, p));
  }

  void list_candidates(std::size_t head) {
    HeadCandidates& all = candidates_.emplace_back();
    if (!is_first()) {
      const EntryList& list = entries_.now().heads[head];
      all.positions = list.positions;
      all.degrees = list.degrees;
      all.gifted = list.gifted;
      entries_.now().list_rows(head, all.rows);
    }
    list_rows(head, flush_.leaving, all.rows);
    for (std::size_t p = flush_.leaving.begin; p < flush_.leaving.end; ++p) {
      all.positions.push_back(static_cast<std::uint32_t>(p));
      all.degrees.push_back(1);
      all.gifted.push_back(0);
    }
  }

  Result<std::vector<EntryMap>> choose() {
    std::vector<Candidates> heads;
    heads.reserve(candidates_.size());
    for (std::size_t head = 0; head < candidates_.size(); ++head) {
      heads.push_back(candidates_[head].view(flush_.keep[head]));
    }
    const RetentionTraits& traits = policy_.traits();
    const bool stay = traits.chooses_once && !stored_scores_.empty();
    if (traits.scores == ScoredQueries::last && !stay) score_by_last_queries();
    const std::vector<float> scores = stored_scores_.of(flush_.length);
    return policy_.retain({.shape = flush_.shape,
                           .layer = flush_.layer,
                           .heads = heads,
                           .scores = scores,
                           .length = flush_.length,
                           .decoding = flush_.decoding,
                           .seed = flush_.seed});
  }

  void score_by_last_queries() {
    const std::size_t group = flush_.shape.group();
    const bool apart = policy_.traits().scores_of_query_heads;
    stored_scores_.start(policy_.traits().score_heads(flush_.shape));
    for (std::size_t head = 0; head < candidates_.size(); ++head) {
      const std::vector<float> sums = weights_of(head);
      const std::vector<std::uint32_t>& positions = candidates_[head].positions;
      const std::size_t rows = sums.size() / group;
      for (std::size_t query = 0; query < group; ++query) {
        const std::size_t to = apart ? head * group + query : head;
        for (std::size_t i = 0; i < positions.size(); ++i) {
          stored_scores_.add(to, positions[i], sums[query * rows + i]);
        }
      }
    }
  }

  /// Weights [group, rows] that the last queries give to the candidates, then to sinks and window.
  [[nodiscard]] std::vector<float> weights_of(std::size_t head) const {
    const LastQueries::Run& last = flush_.last_queries;
    const KvShape& shape = flush_.shape;
    std::vector<const std::byte*> rows = candidates_[head].rows;
    std::vector<float> bias(rows.size());
    std::ranges::transform(candidates_[head].degrees, bias.begin(),
                           [](std::uint32_t d) { return std::log(static_cast<float>(d)); });
    list_rows(head, {0, flush_.sinks}, rows);
    list_rows(head, {flush_.leaving.end, flush_.length}, rows);
    std::vector<float> sums(shape.group() * rows.size());
    const std::size_t numbers = shape.query_heads * shape.head_dim;
    const std::size_t tokens = last.queries.size() / numbers;
    kernels::host::add_query_weights(
        {.shape = shape,
         .queries = last.queries.data() + head * shape.group() * shape.head_dim,
         .query_stride = numbers,
         .tokens = tokens,
         .rows = rows,
         .bias = bias,
         .seen = rows.size() + 1 - std::max<std::size_t>(tokens, 1),
         .sums = sums.data(),
         .stride = rows.size()});
    return sums;
  }

  void carry_out(std::size_t head, const EntryMap& map, FlushCount& count) {
    const HeadCandidates& from = candidates_[head];
    std::vector<HeadCandidates> members(map.entries);
    for (std::size_t i = 0; i < map.target.size(); ++i) {
      if (map.target[i] == EntryMap::dropped) {
        count.dropped += from.degrees[i];
        continue;
      }
      HeadCandidates& entry = members[map.target[i]];
      entry.rows.push_back(from.rows[i]);
      entry.positions.push_back(from.positions[i]);
      entry.degrees.push_back(from.degrees[i]);
      entry.gifted.push_back(from.gifted[i]);
    }
    EntryList& list = entries_.next().heads[head];
    for (std::size_t i = 0; i < members.size(); ++i) {
      kernels::host::merge_rows({.shape = flush_.shape,
                                 .rows = members[i].rows,
                                 .degrees = members[i].degrees,
                                 .merged = entries_.next().memory().row(head, i)});
      list.positions.push_back(members[i].positions.back());
      list.degrees.push_back(
          std::accumulate(members[i].degrees.begin(), members[i].degrees.end(), std::uint32_t{0}));
      list.gifted.push_back(std::ranges::max(members[i].gifted));
    }
    give(head, map);
  }

  void give(std::size_t head, const EntryMap& map) {
    if (map.gifts.empty()) return;
    GiftSums gifts(flush_.shape, map.entries);
    for (const ValueGift& gift : map.gifts) gifts.add(gift, candidates_[head].rows[gift.candidate]);
    for (std::size_t i = 0; i < map.entries; ++i) {
      if (!gifts.has(i)) continue;
      gifts.add_to(entries_.next().memory().row(head, i), i);
      entries_.next().heads[head].gifted[i] = 1;
    }
  }

  const RetentionPolicy& policy_;
  const Flush& flush_;
  KeptEntries& entries_;
  PositionScores& stored_scores_;
  std::vector<HeadCandidates> candidates_;
};

}  // namespace

Result<FlushCount> decide(const RetentionPolicy& policy, const Flush& flush, DecisionParts parts) {
  try {
    return Decision(policy, flush, parts).make();
  } catch (const std::bad_alloc&) {
    return fail(Errc::out_of_memory,
                "host memory ran out while retention chose among the entries "
                "of layer {}",
                index(flush.layer));
  }
}

}  // namespace terrace
