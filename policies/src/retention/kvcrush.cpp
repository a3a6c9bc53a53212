// KVCrush: beside the tokens that a base keeps, representatives of those that it would drop.
//
// Source: arXiv 2503.00022. Each query head votes for as many tokens as may stay; a token's votes
// are its word. Tokens that the base drops are put in the order of their words' distance to an
// anchor, and the list is sampled evenly, both ends included. Blocks of several tokens stay or go
// as a whole: by the sum of their tokens' ratings, and by the mean of their words' distances.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "entry_groups.hpp"
#include "keep_best.hpp"
#include "rows.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::policies {
namespace {

/// Words of votes, one bit a query head, of all positions of a sequence.
class Votes {
 public:
  explicit Votes(const RetainRequest& request)
      : per_word_((request.shape.query_heads + 63) / 64),
        bits_(request.shape.query_heads),
        words_(request.length * per_word_) {
    const std::size_t group = request.shape.group();
    for (std::size_t query = 0; query < bits_; ++query) {
      const Candidates& head = request.heads[query / group];
      const auto scores = request.scores.subspan(query * request.length, request.length);
      std::vector<float> own(head.size());
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = scores[head.positions[i]];
      for (const std::uint32_t i : best_of(own, head.keep)) {
        words_[head.positions[i] * per_word_ + query / 64] |= std::uint64_t{1} << query % 64;
      }
    }
  }

  [[nodiscard]] std::size_t bits() const noexcept { return bits_; }
  [[nodiscard]] std::size_t words() const noexcept { return per_word_; }
  [[nodiscard]] bool has(std::size_t position, std::size_t query) const noexcept {
    return (words_[position * per_word_ + query / 64] >> query % 64 & 1) != 0;
  }
  /// Bits in which a token's word differs from `anchor`.
  [[nodiscard]] std::size_t distance(std::size_t position,
                                     std::span<const std::uint64_t> anchor) const noexcept {
    std::size_t differing = 0;
    for (std::size_t i = 0; i < per_word_; ++i) {
      differing +=
          static_cast<std::size_t>(std::popcount(words_[position * per_word_ + i] ^ anchor[i]));
    }
    return differing;
  }

 private:
  std::size_t per_word_;
  std::size_t bits_;
  std::vector<std::uint64_t> words_;
};

/// Candidates that stay or go together: those of one block, by rising position.
struct Unit {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

std::vector<Unit> units_of(const Candidates& head, std::size_t block_tokens) {
  std::vector<Unit> units;
  for (std::uint32_t i = 0; i < head.size(); ++i) {
    const auto block = [&](std::uint32_t candidate) {
      return head.positions[candidate] / block_tokens;
    };
    if (i == 0 || block(i) != block(i - 1)) units.push_back({i, 0});
    ++units.back().count;
  }
  return units;
}

std::vector<float> rate_units(std::span<const Unit> units, std::span<const float> ratings) {
  std::vector<float> sums;
  sums.reserve(units.size());
  for (const Unit& unit : units) {
    const auto members = ratings.subspan(unit.first, unit.count);
    sums.push_back(std::accumulate(members.begin(), members.end(), 0.0F));
  }
  return sums;
}

/// Returns the candidates of units that were chosen, which rise.
std::vector<std::uint32_t> members_of(std::span<const Unit> units,
                                      std::span<const std::uint32_t> chosen) {
  std::vector<std::uint32_t> members;
  for (const std::uint32_t unit : chosen) {
    for (std::uint32_t i = 0; i < units[unit].count; ++i) members.push_back(units[unit].first + i);
  }
  return members;
}

/// Whether more than half of a KV head's candidates have a query head's vote.
bool is_majority(const Votes& votes, const Candidates& head, std::size_t query) {
  const auto count = std::ranges::count_if(
      head.positions, [&](std::uint32_t position) { return votes.has(position, query); });
  return 2 * static_cast<std::size_t>(count) > head.size();
}

std::vector<std::uint64_t> make_anchor(const Votes& votes, const RetainRequest& request,
                                       const Candidates& head, Anchor kind) {
  Rng rng(request.seed, {index(request.layer)});
  std::vector<std::uint64_t> anchor(votes.words());
  for (std::size_t query = 0; query < votes.bits(); ++query) {
    const bool bit = kind == Anchor::random      ? (rng() >> 63) != 0
                     : kind == Anchor::alternate ? query % 2 == 1
                                                 : is_majority(votes, head, query);
    anchor[query / 64] |= std::uint64_t{bit} << query % 64;
  }
  return anchor;
}

/// Returns `count` of `list`, evenly spread, both ends included.
std::vector<std::uint32_t> sample(std::span<const std::uint32_t> list, std::size_t count) {
  count = std::min(count, list.size());
  const std::size_t gaps = std::max<std::size_t>(count, 2) - 1;
  std::vector<std::uint32_t> chosen;
  chosen.reserve(count);
  for (std::size_t j = 0; j < count; ++j) chosen.push_back(list[j * (list.size() - 1) / gaps]);
  std::ranges::sort(chosen);
  return chosen;
}

class KvCrush final : public RetentionPolicy {
 public:
  KvCrush(std::unique_ptr<Importance> base, const CrushOptions& options)
      : base_(std::move(base)), options_(options), traits_(base_->traits()) {
    traits_.name = "kvcrush";
    traits_.scores_of_query_heads = true;
  }

  [[nodiscard]] const RetentionTraits& traits() const noexcept override { return traits_; }
  [[nodiscard]] std::size_t keep_of(const KeepRequest& request) const noexcept override {
    return base_->keep_of(request);
  }

 private:
  [[nodiscard]] std::vector<EntryMap> do_retain(const RetainRequest& request) const override {
    const Votes votes(request);
    std::vector<EntryMap> maps;
    for (std::size_t head = 0; head < request.heads.size(); ++head) {
      const Candidates& candidates = request.heads[head];
      const double share = options_.representatives * static_cast<double>(candidates.keep);
      const auto representatives = static_cast<std::size_t>(std::lround(share));
      const std::vector<Unit> units = units_of(candidates, options_.block_tokens);
      const auto best = best_of(rate_units(units, base_->rate(request, head)),
                                (candidates.keep - representatives) / options_.block_tokens);
      std::vector<std::uint32_t> rest = all_but(best, units.size());
      if (options_.rule == CrushRule::hamming) {
        put_in_order(rest, units, votes, make_anchor(votes, request, candidates, options_.anchor),
                     candidates.positions);
      }
      EntryGroups groups(candidates.size());
      groups.keep(members_of(units, best));
      groups.keep(members_of(units, sample(rest, representatives / options_.block_tokens)));
      maps.push_back(groups.map());
    }
    return maps;
  }

  /// Puts units in the order of their words' distance to the anchor.
  static void put_in_order(std::vector<std::uint32_t>& rest, std::span<const Unit> units,
                           const Votes& votes, std::span<const std::uint64_t> anchor,
                           std::span<const std::uint32_t> positions) {
    std::ranges::stable_sort(rest, {}, [&](std::uint32_t number) {
      const Unit& unit = units[number];
      std::size_t sum = 0;
      for (const std::uint32_t position : positions.subspan(unit.first, unit.count)) {
        sum += votes.distance(position, anchor);
      }
      return static_cast<double>(sum) / static_cast<double>(unit.count);
    });
  }

  std::unique_ptr<Importance> base_;
  CrushOptions options_;
  RetentionTraits traits_;
};

}  // namespace

MadeRetentionPolicy make_kvcrush(const RetentionOptions& options) {
  TERRACE_ASSIGN(std::unique_ptr<Importance> base, make_importance(options));
  if (base->traits().scores == ScoredQueries::none) {
    return fail(Errc::invalid_argument, "retention.base {} has no attention scores to vote with",
                options.base);
  }
  return std::make_unique<KvCrush>(std::move(base), options.crush);
}

}  // namespace terrace::policies
