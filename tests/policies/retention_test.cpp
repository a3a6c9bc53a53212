// Retention policies: what stays, what is merged, what goes.
#include "terrace/policies/retention.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "made_up_gates.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using policies::Anchor;
using policies::CrushRule;
using policies::make_retention_policy;
using policies::PoolKind;
using policies::RetentionOptions;
using ::testing::ElementsAre;

/// A layer's entries, made up: each KV head has `count` of them, after `sinks` sinks.
class MadeUpLayer {
 public:
  static constexpr std::size_t sinks = 4;

  explicit MadeUpLayer(std::size_t count, std::uint64_t seed = 1) : length_(sinks + count + 8) {
    Rng rng(seed);
    std::vector<float> numbers(shape_.kv_heads * count * 2 * shape_.head_dim);
    for (float& number : numbers) number = static_cast<float>(rng.uniform() * 2 - 1);
    rows_.resize(shape_.kv_heads * count * shape_.row_bytes());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      store_f32(rows_.data(), shape_.dtype, i, numbers[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      positions_.push_back(static_cast<std::uint32_t>(sinks + i));
    }
    degrees_.assign(count, 1);
    for (std::size_t i = 0; i < shape_.kv_heads * count; ++i) {
      pointers_.push_back(rows_.data() + i * shape_.row_bytes());
    }
    for (std::size_t i = 0; i < shape_.query_heads * length_; ++i) {
      scores_.push_back(static_cast<float>(rng.below(1000)) / 1000);
    }
  }

  [[nodiscard]] std::vector<Candidates> heads(std::size_t keep) const {
    std::vector<Candidates> heads;
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      heads.push_back({.rows = std::span(pointers_).subspan(head * count(), count()),
                       .positions = positions_,
                       .degrees = degrees_,
                       .keep = keep});
    }
    return heads;
  }

  [[nodiscard]] std::vector<EntryMap> retain(const RetentionPolicy& policy, std::size_t keep,
                                             std::uint64_t seed = 7) const {
    return retain(policy, heads(keep), {.decoding = true, .seed = seed});
  }

  /// Retains among the candidates `all`; `more` has the rest of the request.
  [[nodiscard]] std::vector<EntryMap> retain(const RetentionPolicy& policy,
                                             const std::vector<Candidates>& all,
                                             RetainRequest more) const {
    const RetentionTraits& traits = policy.traits();
    const bool rated = traits.scores != ScoredQueries::none || traits.needs_pre_rope_keys;
    const std::size_t score_heads = traits.score_heads(shape_);
    more.shape = shape_;
    more.heads = all;
    more.scores = std::span(scores_).first(rated ? score_heads * length_ : 0);
    more.length = length_;
    const auto maps = policy.retain(more);
    EXPECT_TRUE(maps.has_value()) << maps.error().message();
    return *maps;
  }

  [[nodiscard]] float score(std::size_t head, std::size_t candidate) const {
    return scores_[head * length_ + positions_[candidate]];
  }
  void set_score(std::size_t head, std::size_t position, float score) {
    scores_[head * length_ + position] = score;
  }
  void set_scores(float score) { std::ranges::fill(scores_, score); }
  void set_key(std::size_t head, std::size_t candidate, std::span<const float> key) {
    std::byte* const row = rows_.data() + (head * count() + candidate) * shape_.row_bytes();
    for (std::size_t i = 0; i < key.size(); ++i) store_f32(row, shape_.dtype, i, key[i]);
  }
  void set_degree(std::size_t candidate, std::uint32_t degree) { degrees_[candidate] = degree; }
  [[nodiscard]] std::vector<double> key(std::size_t head, std::size_t candidate) const {
    const std::byte* const row = pointers_[head * count() + candidate];
    std::vector<double> key(shape_.head_dim);
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = load_f32(row, shape_.dtype, i);
    return key;
  }
  [[nodiscard]] std::size_t count() const noexcept { return positions_.size(); }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }
  [[nodiscard]] const KvShape& shape() const noexcept { return shape_; }

 private:
  KvShape shape_{.layers = 5, .query_heads = 4, .kv_heads = 2, .head_dim = 8, .dtype = Dtype::f16};
  std::size_t length_;
  std::vector<std::byte> rows_;
  std::vector<const std::byte*> pointers_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> degrees_;
  std::vector<float> scores_;  ///< [query heads, length]; policies of KV heads read the first ones
};

/// The candidates that stay as they are.
std::vector<std::size_t> kept(const EntryMap& map) {
  std::vector<std::size_t> members(map.entries);
  for (const std::uint32_t target : map.target) {
    if (target != EntryMap::dropped) ++members[target];
  }
  std::vector<std::size_t> alone;
  for (std::size_t i = 0; i < map.target.size(); ++i) {
    const std::uint32_t target = map.target[i];
    if (target != EntryMap::dropped && members[target] == 1) alone.push_back(i);
  }
  return alone;
}

/// The `count` candidates of the greatest rating, of equal ones the first.
template <typename Rate>
std::vector<std::size_t> best(std::size_t candidates, std::size_t count, Rate rate) {
  std::vector<std::size_t> order(candidates);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater{}, rate);
  order.resize(count);
  std::ranges::sort(order);
  return order;
}

class EachRetention : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<RetentionPolicy> policy_ =
      make_retention_policy(GetParam(), {.gates = made_up_gates(MadeUpLayer(1).shape())}).value();
};

TEST_P(EachRetention, KeepsAllOfNoMoreThanMayStay) {
  const MadeUpLayer layer(20);
  for (const EntryMap& map : layer.retain(*policy_, 20)) EXPECT_EQ(map, keep_all(20));
}

TEST_P(EachRetention, FillsItsPlacesInTheOrderOfTheLastTokens) {
  const MadeUpLayer layer(300);
  for (const std::size_t keep : {1U, 2U, 40U, 151U, 299U}) {
    const auto maps = layer.retain(*policy_, keep);
    ASSERT_EQ(maps.size(), layer.shape().kv_heads);
    for (const EntryMap& map : maps) {
      EXPECT_EQ(map.entries, keep);
      std::vector<std::size_t> last(map.entries);
      for (std::size_t i = 0; i < map.target.size(); ++i) {
        if (map.target[i] == EntryMap::dropped) continue;
        ASSERT_LT(map.target[i], map.entries);
        last[map.target[i]] = i;
      }
      EXPECT_TRUE(std::ranges::is_sorted(last));
      const bool drops = std::ranges::count(map.target, EntryMap::dropped) > 0;
      EXPECT_EQ(drops, !policy_->traits().merges);
      if (drops) {
        EXPECT_EQ(kept(map).size(), keep);
      }
    }
  }
}

TEST_P(EachRetention, RefusesScoresThatAreNotAllThere) {
  const MadeUpLayer layer(20);
  const auto heads = layer.heads(10);
  const std::vector<float> one(1);
  const auto refused = policy_->retain(
      {.shape = layer.shape(), .heads = heads, .scores = one, .length = layer.length()});
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& row : policies::retention_policies()) all.emplace_back(row.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Table, EachRetention, ::testing::ValuesIn(names()),
                         [](const auto& one) { return one.param; });

TEST(H2o, KeepsWhatDrewMostAttention) {
  const MadeUpLayer layer(200);
  const auto policy = make_retention_policy("h2o").value();
  const auto maps = layer.retain(*policy, 50);
  for (std::size_t head = 0; head < 2; ++head) {
    EXPECT_EQ(kept(maps[head]), best(200, 50, [&](std::size_t i) { return layer.score(head, i); }));
  }
}

TEST(H2o, NormalisedDividesByTheQueriesThatSawTheToken) {
  MadeUpLayer layer(100);
  // All weights of a query are alike: the sum favours the first tokens, the quotient only breaks
  // ties.
  for (std::size_t i = 0; i < layer.length(); ++i) {
    const float seen = static_cast<float>(layer.length() - i);
    for (std::size_t head = 0; head < 2; ++head) layer.set_score(head, i, seen);
  }
  layer.set_score(0, MadeUpLayer::sinks + 90, 1.5F * static_cast<float>(layer.length() - 94));
  const auto sums = make_retention_policy("h2o").value();
  EXPECT_THAT(kept(layer.retain(*sums, 2)[0]), ElementsAre(0, 1));
  const auto quotients = make_retention_policy("h2o", {.normalise = true}).value();
  EXPECT_THAT(kept(layer.retain(*quotients, 2)[0]), ElementsAre(0, 90));
}

TEST(Pooling, TakesTheGreatestOrTheMeanOfNeighbours) {
  MadeUpLayer layer(60);
  layer.set_scores(0);
  layer.set_score(0, MadeUpLayer::sinks + 30, 1.0F);
  const auto greatest = make_retention_policy("h2o", {.pool = {.width = 5}}).value();
  EXPECT_THAT(kept(layer.retain(*greatest, 5)[0]), ElementsAre(28, 29, 30, 31, 32));
  layer.set_score(0, MadeUpLayer::sinks + 33, 0.9F);
  const auto mean =
      make_retention_policy("h2o", {.pool = {.width = 5, .kind = PoolKind::average}}).value();
  // Only 31 and 32 are near both.
  EXPECT_THAT(kept(layer.retain(*mean, 2)[0]), ElementsAre(31, 32));
}

TEST(Pooling, CountsNeighboursThatWereDroppedAndNoneAfterTheLast) {
  MadeUpLayer layer(10);
  layer.set_scores(0);
  layer.set_score(0, MadeUpLayer::sinks - 1, 1.0F);   // a sink
  layer.set_score(0, MadeUpLayer::sinks + 10, 9.0F);  // in the window
  const auto policy = make_retention_policy("h2o", {.pool = {.width = 3}}).value();
  EXPECT_THAT(kept(layer.retain(*policy, 1)[0]), ElementsAre(0));
}

TEST(PyramidKv, GivesTheFirstLayersMoreAndAllTogetherTheSame) {
  const auto policy = make_retention_policy("pyramidkv").value();
  const KvShape shape = MadeUpLayer(1).shape();
  std::vector<std::size_t> keeps;
  for (std::uint32_t l = 0; l < shape.layers; ++l) {
    keeps.push_back(policy->keep_of({.shape = shape, .layer = LayerId{l}, .mean = 100}));
  }
  EXPECT_THAT(keeps, ElementsAre(195, 148, 100, 53, 5));
}

TEST(SnapKv, MakesOneOfSevenNeighboursAsItsAuthorsDo) {
  MadeUpLayer layer(60);
  layer.set_scores(0);
  layer.set_score(0, MadeUpLayer::sinks + 30, 1);
  const auto policy = make_retention_policy("snapkv").value();
  EXPECT_THAT(kept(layer.retain(*policy, 7)[0]), ElementsAre(27, 28, 29, 30, 31, 32, 33));
}

TEST(KvCrush, WithoutRepresentativesIsItsBase) {
  const MadeUpLayer layer(150);
  for (const char* base : {"h2o", "snapkv"}) {
    RetentionOptions options{.base = base};
    options.crush.representatives = 0;
    options.pool.width = 1;
    const auto crushed = layer.retain(*make_retention_policy("kvcrush", options).value(), 40);
    for (std::size_t head = 0; head < 2; ++head) {
      // The base sums the scores of a group's query heads.
      const auto sum = [&](std::size_t i) {
        return layer.score(2 * head, i) + layer.score(2 * head + 1, i);
      };
      EXPECT_EQ(kept(crushed[head]), best(150, 40, sum));
    }
  }
}

TEST(KvCrush, KeepsRepresentativesByTheDistanceOfTheirVotes) {
  // Query heads 0 and 1 are of KV head 0. Each votes for four of eight tokens.
  MadeUpLayer layer(8);
  layer.set_scores(0);
  for (const std::size_t i : {0U, 1U, 2U, 3U}) layer.set_score(0, MadeUpLayer::sinks + i, 1);
  for (const std::size_t i : {0U, 1U, 4U, 5U}) layer.set_score(1, MadeUpLayer::sinks + i, 1);
  RetentionOptions options;
  options.crush = {.representatives = 0.5, .anchor = Anchor::alternate};
  const auto map = layer.retain(*make_retention_policy("kvcrush", options).value(), 4)[0];
  // The base keeps 0 and 1. Distances of the other words to the anchor 10 (query heads 2 and 3 have
  // the same votes): 4 and 5 are nearest, then 6 and 7, then 2 and 3. The ends are sampled.
  EXPECT_THAT(kept(map), ElementsAre(0, 1, 3, 4));
}

TEST(KvCrush, ByPositionSamplesEvenly) {
  MadeUpLayer layer(101);
  layer.set_scores(0);
  RetentionOptions options;
  options.crush = {.representatives = 1, .rule = CrushRule::position};
  const auto map = layer.retain(*make_retention_policy("kvcrush", options).value(), 5)[0];
  EXPECT_THAT(kept(map), ElementsAre(0, 25, 50, 75, 100));
}

TEST(KvCrush, KeepsAndDropsWholeBlocks) {
  // Sixteen blocks of four tokens, and a last one of two. Tokens of blocks 3 and 12 draw most; one
  // of block 5 draws more than any other, but its block does not.
  MadeUpLayer layer(66);
  layer.set_scores(0);
  const auto draws = [&](std::size_t candidate, float score) {
    for (std::size_t head = 0; head < 4; ++head) {
      layer.set_score(head, MadeUpLayer::sinks + candidate, score);
    }
  };
  for (std::size_t i = 0; i < 4; ++i) {
    draws(4 * 3 + i, 2);
    draws(4 * 12 + i, 1.5);
  }
  draws(4 * 5, 4);
  RetentionOptions options;
  options.pool.width = 1;
  options.crush = {.representatives = 0.5, .rule = CrushRule::position, .block_tokens = 4};
  const auto maps = layer.retain(*make_retention_policy("kvcrush", options).value(), 19);
  // Two blocks are the base's, and two stand for the rest: its first and its last.
  EXPECT_THAT(kept(maps[0]), ElementsAre(0, 1, 2, 3, 12, 13, 14, 15, 48, 49, 50, 51, 64, 65));
  EXPECT_EQ(maps[1], maps[0]);

  // By votes: the heads of the KV head agree on the tokens of some blocks, and not on others'.
  options.crush.rule = CrushRule::hamming;
  for (const Anchor anchor : {Anchor::random, Anchor::mean, Anchor::alternate}) {
    options.crush.anchor = anchor;
    const MadeUpLayer any(66);
    const auto by_votes = any.retain(*make_retention_policy("kvcrush", options).value(), 40);
    for (const EntryMap& map : by_votes) {
      const std::vector<std::size_t> members = kept(map);
      EXPECT_LE(members.size(), 40U);
      EXPECT_GE(members.size(), 34U);  // ten blocks, perhaps with the last one
      for (const std::size_t member : members) {
        const std::size_t first = member / 4 * 4;
        for (std::size_t i = first; i < std::min<std::size_t>(first + 4, 66); ++i) {
          EXPECT_THAT(members, ::testing::Contains(i));
        }
      }
    }
  }
}

TEST(KvCrush, CountsAlikeWhateverHeadsAreFirst) {
  MadeUpLayer one(120);
  MadeUpLayer other(120);
  for (std::size_t i = 0; i < one.length(); ++i) {
    const float score = static_cast<float>(i * 37 % 101);
    one.set_score(0, i, score);
    one.set_score(1, i, static_cast<float>(i * 53 % 97));
    other.set_score(1, i, score);
    other.set_score(0, i, static_cast<float>(i * 53 % 97));
  }
  const auto policy = make_retention_policy("kvcrush").value();  // the mean knows no order
  EXPECT_EQ(one.retain(*policy, 30)[0], other.retain(*policy, 30)[0]);
}

TEST(Chelsea, MergesKeysThatAreAlikeAndDropsNothing) {
  // Eight directions, each four times, in turn: a key's like is always in the other half.
  MadeUpLayer layer(32);
  for (std::size_t i = 0; i < 32; ++i) {
    std::vector<float> key(8);
    key[i / 4] = 1.0F + static_cast<float>(i % 4);
    layer.set_key(0, i, key);
  }
  const auto policy = make_retention_policy("chelsea").value();
  const EntryMap map = layer.retain(*policy, 8)[0];
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(map.target[i], i / 4);
}

/// A call of matching, spelt out: for every second entry the nearest among the remaining entries of
/// its chunk.
std::vector<std::pair<std::size_t, std::size_t>> edges_in_words(const MadeUpLayer& layer,
                                                                std::size_t chunk,
                                                                std::size_t count) {
  struct Edge {
    double likeness;
    std::size_t from, to;
  };
  const auto likeness = [&](std::size_t a, std::size_t b) {
    const auto x = layer.key(0, a);
    const auto y = layer.key(0, b);
    const auto dot = [](const auto& p, const auto& q) {
      return std::inner_product(p.begin(), p.end(), q.begin(), 0.0);
    };
    return dot(x, y) / std::sqrt(dot(x, x) * dot(y, y));
  };
  std::vector<Edge> edges;
  for (std::size_t a = 0; a < layer.count(); ++a) {
    const std::size_t begin = a / chunk * chunk;
    if ((a - begin) % 2 == 1) continue;
    Edge edge{-2, a, 0};
    for (std::size_t b = begin + 1; b < std::min(begin + chunk, layer.count()); b += 2) {
      if (likeness(a, b) > edge.likeness) edge = {likeness(a, b), a, b};
    }
    if (edge.likeness > -2) edges.push_back(edge);
  }
  std::ranges::stable_sort(edges, std::greater{}, &Edge::likeness);
  edges.resize(count);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const Edge& edge : edges) pairs.emplace_back(edge.from, edge.to);
  return pairs;
}

TEST(Chelsea, TakesTheEdgesThatAreMostAlike) {
  for (const std::size_t chunk : {16U, 64U, 200U}) {
    const MadeUpLayer layer(101, chunk);
    RetentionOptions options;
    options.merge.chunk = chunk;
    const std::size_t merged = 30;
    const EntryMap map =
        layer.retain(*make_retention_policy("chelsea", options).value(), 101 - merged)[0];
    std::size_t joined = 0;
    for (const auto& [from, to] : edges_in_words(layer, chunk, merged)) {
      EXPECT_EQ(map.target[from], map.target[to]) << from << ' ' << to;
      ++joined;
    }
    EXPECT_EQ(joined, merged);
  }
}

TEST(Chelsea, WeighsAMeanByDegrees) {
  // The first call merges 0 and 1, 2 and 3, 4 and 5. The mean of 0 and 1 is nearer to 2 and 3 than
  // 4 and 5 are if 0 weighs as much as the tokens that it stands for, and farther if not.
  MadeUpLayer layer(6);
  const std::vector<std::vector<float>> keys{
      {1, 0, 0},          {0.8F, 0.6F, 0},        {0.75F, -0.66F, 0},
      {0.75F, -0.66F, 0}, {0.49F, -0.43F, 0.76F}, {0.49F, -0.43F, 0.76F}};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::vector<float> key = keys[i];
    key.resize(8);
    layer.set_key(0, i, key);
  }
  RetentionOptions options;
  options.merge.chunk = 4;
  const auto policy = make_retention_policy("chelsea", options).value();
  EXPECT_THAT(layer.retain(*policy, 2)[0].target, ElementsAre(0, 0, 1, 1, 1, 1));
  layer.set_degree(0, 1000);
  EXPECT_THAT(layer.retain(*policy, 2)[0].target, ElementsAre(0, 0, 0, 0, 1, 1));
}

TEST(Merge, OfTheRestFollowsAnyBase) {
  const MadeUpLayer layer(200);
  for (const char* base : {"h2o", "snapkv"}) {
    RetentionOptions options;
    options.merge.share = 0.5;
    options.pool.width = 1;
    const EntryMap map = layer.retain(*make_retention_policy(base, options).value(), 40)[0];
    EXPECT_EQ(map.entries, 40U);
    EXPECT_EQ(std::ranges::count(map.target, EntryMap::dropped), 0);
    const auto alone = kept(map);
    for (const std::size_t i : best(200, 20, [&](std::size_t n) { return layer.score(0, n); })) {
      EXPECT_TRUE(std::ranges::binary_search(alone, i));
    }
  }
}

TEST(SmartKv, KeepsTheLongestLivesOrWhatIsLeftOfThem) {
  MadeUpLayer layer(100);
  for (std::size_t i = 0; i < layer.length(); ++i) {
    for (std::size_t head = 0; head < 2; ++head) layer.set_score(head, i, 3);  // 64 tokens
  }
  layer.set_score(0, MadeUpLayer::sinks, 3.2F);       // 84 tokens, and 108 old
  layer.set_score(0, MadeUpLayer::sinks + 80, 2.9F);  // 56 tokens, and 28 old
  const auto gates = made_up_gates(layer.shape());
  const auto born = make_retention_policy("smartkv", {.ageing = false, .gates = gates}).value();
  EXPECT_THAT(kept(layer.retain(*born, 1)[0]), ElementsAre(0));
  const auto aged = make_retention_policy("smartkv", {.gates = gates}).value();
  EXPECT_THAT(kept(layer.retain(*aged, 1)[0]), ElementsAre(99));
}

/// The gifts of a KV head, by the candidates that they come from.
std::vector<std::uint32_t> givers(const EntryMap& map) {
  std::vector<std::uint32_t> all;
  for (const ValueGift& gift : map.gifts) all.push_back(gift.candidate);
  return all;
}

TEST(Cam, KeepsTheLastTokensAndAddsNoValuesAfterAPrompt) {
  const MadeUpLayer layer(200);
  const auto policy = make_retention_policy("cam").value();
  const auto recent = layer.retain(*make_retention_policy("recent").value(), 50);
  EXPECT_EQ(layer.retain(*policy, layer.heads(50), {.decoding = false}), recent);
  auto maps = layer.retain(*policy, 50);
  for (EntryMap& map : maps) {
    EXPECT_FALSE(map.gifts.empty());
    map.gifts.clear();
  }
  EXPECT_EQ(maps, recent);
}

TEST(Cam, AddsAllValuesIfNoTokenDrewMoreAttentionThanLaterOnes) {
  MadeUpLayer layer(200);
  layer.set_scores(0.5F);
  const auto policy = make_retention_policy("cam").value();
  const EntryMap map = layer.retain(*policy, 50)[0];
  ASSERT_EQ(map.gifts.size(), 150U);
  for (std::uint32_t i = 0; i < 150; ++i) {
    EXPECT_EQ(map.gifts[i],
              (ValueGift{.candidate = i, .first = 0, .count = 32, .factor = 1.0F / 32}));
  }
  // Fewer tokens stay than a value has parts: the other parts are lost.
  const EntryMap few = layer.retain(*policy, 5)[0];
  ASSERT_EQ(few.gifts.size(), 195U);
  for (const ValueGift& gift : few.gifts) {
    EXPECT_EQ(gift.count, 5U);
    EXPECT_EQ(gift.factor, 1.0F / 32);
  }
}

TEST(Cam, HandsOnWithTheProbabilityOfATokensShareOfItsNeighboursAttention) {
  constexpr std::uint32_t token = 40;
  MadeUpLayer layer(200);
  layer.set_scores(0);
  EXPECT_TRUE(layer.retain(*make_retention_policy("cam").value(), 50)[0].gifts.empty());
  // The mean of itself and the 32 tokens after it is 20 / 33.
  layer.set_score(0, MadeUpLayer::sinks + token, 0.2F);
  layer.set_score(0, MadeUpLayer::sinks + token + 32, 19.8F);
  layer.set_score(0, MadeUpLayer::sinks + token + 33, 1000);
  const auto policy = make_retention_policy("cam").value();
  std::size_t handed_on = 0;
  constexpr std::size_t seeds = 2000;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto from = givers(layer.retain(*policy, 50, seed)[0]);
    handed_on += static_cast<std::size_t>(std::ranges::count(from, token));
  }
  // 0.33 +- 0.0105: within four standard errors.
  EXPECT_NEAR(static_cast<double>(handed_on) / seeds, 0.2 * 33 / 20, 0.042);
}

TEST(Cam, DrawsAnewForEachSeedLayerHeadAndPosition) {
  MadeUpLayer layer(300);
  // Each is likely by a half, but the last ones.
  for (std::size_t i = 0; i < layer.length(); ++i) {
    for (std::size_t head = 0; head < 2; ++head) {
      layer.set_score(head, i, std::pow(1.0446F, static_cast<float>(i)));
    }
  }
  const auto policy = make_retention_policy("cam").value();
  const auto heads = layer.heads(100);
  const auto maps = layer.retain(*policy, heads, {.decoding = true, .seed = 1});
  EXPECT_EQ(layer.retain(*policy, heads, {.decoding = true, .seed = 1}), maps);
  EXPECT_NE(givers(maps[0]), givers(maps[1]));
  EXPECT_NE(layer.retain(*policy, heads, {.decoding = true, .seed = 2})[0], maps[0]);
  EXPECT_NE(layer.retain(*policy, heads, {.layer = LayerId{1}, .decoding = true, .seed = 1})[0],
            maps[0]);
  const std::size_t given = maps[0].gifts.size();
  EXPECT_GT(given, 60U);
  EXPECT_LT(given, 140U);
}

TEST(RetentionTable, RefusesSettingsOutOfRangeByName) {
  const auto message = [](const char* name, const RetentionOptions& options) {
    const auto made = make_retention_policy(name, options);
    return made ? std::string() : std::string(made.error().message());
  };
  EXPECT_THAT(message("h3o", {}), ::testing::HasSubstr("did you mean h2o"));
  EXPECT_THAT(message("h2o", {.pool = {.width = 4}}), ::testing::HasSubstr("retention.pool"));
  EXPECT_THAT(message("h2o", {.merge = {.share = 2}}), ::testing::HasSubstr("retention.merge"));
  EXPECT_THAT(message("kvcrush", {.base = "smartkv"}), ::testing::HasSubstr("retention.base"));
  EXPECT_THAT(message("kvcrush", {.crush = {.block_tokens = 0}}),
              ::testing::HasSubstr("retention.block_tokens"));
  EXPECT_THAT(message("smartkv", {}), ::testing::HasSubstr("give retention.gates"));
  for (const char* name : {"snapkv", "kvcrush"}) {
    EXPECT_THAT(message(name, {.base = "snapkv", .score_window = 0}),
                ::testing::HasSubstr("window"));
  }
}

}  // namespace
}  // namespace terrace
