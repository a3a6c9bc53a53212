#include "terrace/tuning/prefix_tiers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "contract/fuzz.hpp"
#include "tuning/made_up_prompts.hpp"

namespace terrace::tuning {
namespace {

constexpr std::size_t chunk_tokens = 10;
constexpr double tokens_per_second = 10;

PrefixTiers make_tiers(const std::vector<std::uint64_t>& rooms) {
  return PrefixTiers::create({.tiers = rooms,
                              .chunk_tokens = chunk_tokens,
                              .prefill_tokens_per_second = tokens_per_second})
      .value();
}

/// Has a request come that has so many tokens besides its whole chunks. Returns the tokens hit.
std::uint64_t hits_of(PrefixTiers& tiers, const Chunks& chunks, std::uint64_t more = 0,
                      std::optional<std::uint64_t> arrival_ms = {}) {
  const std::uint64_t before = tiers.figures().hit_tokens();
  tiers.apply(
      {.arrival_ms = arrival_ms, .chunks = chunks, .tokens = chunks.size() * chunk_tokens + more});
  return tiers.figures().hit_tokens() - before;
}

TEST(PrefixTiers, CountARequestsLongestRunFromTheFront) {
  PrefixTiers tiers = make_tiers({3});
  EXPECT_EQ(hits_of(tiers, {0, 1, 2}, 5), 0U);
  EXPECT_EQ(hits_of(tiers, {0, 1}), 20U);
  EXPECT_EQ(hits_of(tiers, {0, 3}, 5), 10U) << "2 goes for 3: it was used longest ago";
  EXPECT_EQ(hits_of(tiers, {0, 1, 2}), 20U) << "3 goes for 2, whose request holds the others";
  EXPECT_EQ(hits_of(tiers, {0, 3}), 10U);
  EXPECT_EQ(hits_of(tiers, {4, 0}), 0U) << "0 is there, and behind a missing chunk";
  const PrefixFigures& figures = tiers.figures();
  EXPECT_EQ(figures.requests, 6U);
  EXPECT_EQ(figures.tokens, 35U + 20 + 25 + 30 + 20 + 20);
  EXPECT_EQ(figures.missed_tokens, figures.tokens - 60);
  EXPECT_EQ(figures.tiers[0].hit_tokens, 60U);
  EXPECT_EQ(figures.tiers[0].chunks_most, 3U);
  EXPECT_EQ(figures.tiers[0].evicted, 3U) << "what the last request stores is not counted yet";
}

TEST(PrefixTiers, GiveUpTheEndOfAPrefixFirst) {
  PrefixTiers tiers = make_tiers({4});
  hits_of(tiers, {0, 1, 2, 3});
  hits_of(tiers, {7});
  EXPECT_EQ(hits_of(tiers, {0, 1, 2, 3}), 30U);
}

TEST(PrefixTiers, ReadInTheHighestTierAndKeepCopiesAbove) {
  PrefixTiers tiers = make_tiers({2, 10});
  EXPECT_EQ(hits_of(tiers, {0, 1}), 0U);
  EXPECT_EQ(hits_of(tiers, {0, 1}), 20U);
  EXPECT_EQ(tiers.figures().tiers[1].hit_tokens, 20U) << "what is stored is in no memory yet";
  EXPECT_EQ(hits_of(tiers, {0, 1}), 20U);
  EXPECT_EQ(tiers.figures().tiers[0].hit_tokens, 20U);
  EXPECT_EQ(tiers.figures().tiers[1].hit_tokens, 20U);
}

TEST(PrefixTiers, WithMemoryForLessThanARunReadAllOfItBelow) {
  PrefixTiers tiers = make_tiers({2, 10});
  for (int i = 0; i < 5; ++i) hits_of(tiers, {0, 1, 2});
  EXPECT_EQ(tiers.figures().tiers[0].hit_tokens, 0U);
  EXPECT_EQ(tiers.figures().tiers[1].hit_tokens, 4U * 30);
  EXPECT_EQ(tiers.figures().tiers[0].evicted, 4U * 3 - 2);
}

TEST(PrefixTiers, FindNothingInMemoryThatIsNotInTheFile) {
  PrefixTiers tiers = make_tiers({10, 2});
  hits_of(tiers, {0, 1});
  EXPECT_EQ(hits_of(tiers, {0, 1}), 20U);
  hits_of(tiers, {5, 6});
  EXPECT_EQ(hits_of(tiers, {0, 1}), 0U) << "memory has both, and no look-up finds them";
  EXPECT_EQ(hits_of(tiers, {0, 1}), 20U);
  EXPECT_EQ(tiers.figures().tiers[0].hit_tokens, 20U) << "stored anew, they are found in memory";
}

TEST(PrefixTiers, StoreARequestsChunksWhenItsPromptIsComputed) {
  PrefixTiers tiers = make_tiers({5});
  EXPECT_EQ(hits_of(tiers, {0}, 0, 0), 0U);
  EXPECT_EQ(hits_of(tiers, {0}, 0, 500), 0U) << "the first one takes a second";
  EXPECT_EQ(hits_of(tiers, {0}, 0, 1000), 10U);
  EXPECT_EQ(tiers.figures().overlapping, 2U) << "the second one computes until 1.5 s";
}

TEST(PrefixTiers, SpareChunksThatRequestsUse) {
  PrefixTiers tiers = make_tiers({2});
  hits_of(tiers, {0, 1}, 0, 0);
  EXPECT_EQ(hits_of(tiers, {0, 1}, 100, 3000), 20U) << "holds both until 13 s";
  hits_of(tiers, {5}, 0, 3500);
  EXPECT_EQ(hits_of(tiers, {0, 1}, 0, 5000), 20U);
  EXPECT_EQ(tiers.figures().refused_chunks, 1U);
  hits_of(tiers, {5}, 0, 13'000);
  EXPECT_EQ(hits_of(tiers, {0, 1}, 0, 14'000), 10U) << "1 went for 5";
}

TEST(PrefixTiers, MakeNoRoomAmongTheChunksOfTheRequestThatNeedsIt) {
  PrefixTiers tiers = make_tiers({2});
  hits_of(tiers, {0, 1, 2, 3});
  EXPECT_EQ(hits_of(tiers, {0, 1, 2, 3}), 20U);
  EXPECT_EQ(tiers.figures().refused_chunks, 2U);
}

TEST(PrefixTiers, TakeATimeThatGoesBackForNow) {
  PrefixTiers tiers = make_tiers({2});
  hits_of(tiers, {0}, 0, 10'000);
  EXPECT_EQ(hits_of(tiers, {0}, 0, 2000), 0U) << "the first one computes";
  EXPECT_EQ(hits_of(tiers, {0}, 0, 11'000), 10U);
}

TEST(PrefixTiers, RefuseWhatCanHoldOrComputeNothing) {
  const PrefixTiersOptions good{.tiers = {1}, .chunk_tokens = 1, .prefill_tokens_per_second = 1};
  EXPECT_TRUE(PrefixTiers::create(good).has_value());
  for (const auto& spoil : std::vector<void (*)(PrefixTiersOptions&)>{
           [](PrefixTiersOptions& of) { of.tiers.clear(); },
           [](PrefixTiersOptions& of) { of.tiers = {1, 0}; },
           [](PrefixTiersOptions& of) { of.chunk_tokens = 0; },
           [](PrefixTiersOptions& of) { of.prefill_tokens_per_second = 0; }}) {
    PrefixTiersOptions bad = good;
    spoil(bad);
    EXPECT_EQ(PrefixTiers::create(bad).error().code, Errc::invalid_argument);
  }
}

/// The same rule for one tier and requests one after the other, written in another way: each stored
/// chunk has the number of its last request and its depth.
class Reference {
 public:
  explicit Reference(std::size_t room) : room_(room) {}

  std::uint64_t hits_of(const Chunks& chunks) {
    std::size_t run = 0;
    while (run < chunks.size() && stored_.contains(chunks[run])) ++run;
    ++request_;
    for (std::size_t depth = 0; depth < chunks.size(); ++depth) {
      if (depth >= run && stored_.size() == room_ && !make_room()) break;
      stored_[chunks[depth]] = {request_, -static_cast<std::ptrdiff_t>(depth)};
    }
    return run * chunk_tokens;
  }

 private:
  bool make_room() {
    const auto oldest =
        std::ranges::min_element(stored_, {}, [](const auto& each) { return each.second; });
    if (oldest->second.first == request_) return false;
    stored_.erase(oldest);
    return true;
  }

  std::size_t room_;
  std::uint64_t request_ = 0;
  /// By chunk: its last request, and the depth, those at the end first.
  std::map<std::uint32_t, std::pair<std::uint64_t, std::ptrdiff_t>> stored_;
};

TEST(PrefixTiers, HitWhatLeastRecentlyUsedHits) {
  const std::uint64_t seed = fuzz_seed(7);
  for (const std::size_t room : std::vector<std::size_t>{1, 5, 20, 80, 300}) {
    Prompts prompts(seed);
    PrefixTiers tiers = make_tiers({room});
    Reference reference(room);
    for (int i = 0; i < 2000; ++i) {
      const Chunks chunks = prompts.next();
      ASSERT_EQ(hits_of(tiers, chunks), reference.hits_of(chunks)) << "request " << i;
    }
  }
}

TEST(PrefixTiers, CountEachTokenOnce) {
  const std::uint64_t seed = fuzz_seed(11);
  Rng rng(seed);
  for (int run = 0; run < 20; ++run) {
    Prompts prompts(rng());
    std::vector<std::uint64_t> rooms{rng.below(30), 1 + rng.below(60)};
    PrefixTiers tiers = make_tiers(rooms);
    PrefixTiers alone = make_tiers({rooms.back()});
    std::uint64_t now = 0;
    for (int i = 0; i < 500; ++i) {
      const Chunks chunks = prompts.next();
      const std::uint64_t more = rng.below(chunk_tokens);
      const std::optional<std::uint64_t> arrival =
          rng.below(10) == 0 ? std::nullopt : std::optional(now += rng.below(4000));
      // Memory finds no more than its file has.
      ASSERT_EQ(hits_of(tiers, chunks, more, arrival), hits_of(alone, chunks, more, arrival));
    }
    const PrefixFigures& figures = tiers.figures();
    EXPECT_EQ(figures.tiers[0].hit_tokens + figures.tiers[1].hit_tokens + figures.missed_tokens,
              figures.tokens);
    for (std::size_t tier = 0; tier < rooms.size(); ++tier) {
      EXPECT_LE(figures.tiers[tier].chunks_most, rooms[tier]);
    }
  }
}

}  // namespace
}  // namespace terrace::tuning
