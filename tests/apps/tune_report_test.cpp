#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tune/report.hpp"

namespace terrace::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

tuning::TunedRow row(const char* policy, CacheGranularity granularity, bool offline = false) {
  tuning::TunedRow made{
      .cache = {.policy = policy, .admission = "always", .granularity = granularity},
      .block_tokens = 32,
      .slots = 4,
      .optimum_rows = 10,
      .offline = offline};
  made.outcome.cache.rows_hit = 5;
  made.outcome.cache.rows_missed = 5;
  return made;
}

tuning::TuneResult result() {
  constexpr auto block = CacheGranularity::block;
  constexpr auto cluster = CacheGranularity::cluster;
  tuning::TuneResult made{.rows = {row("lru", block), row("lru", block), row("arc", cluster),
                                   row("arc", block), row("arc", cluster),
                                   row("belady", block, true), row("belady", cluster, true)}};
  made.without_cache.cache.policy = "none";
  return made;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

TEST(TunedTable, HasTheBestOfEachPolicyAndUnitAndCountsTheRest) {
  EXPECT_THAT(
      lines(tuned_table(result())),
      ElementsAre(StartsWith("policy"), HasSubstr("/layer"), StartsWith("lru"), StartsWith("arc"),
                  StartsWith("arc"), StartsWith("belady"), StartsWith("belady"),
                  StartsWith("(no cache)"), "2 more: --format json, or --report FILE"));
}

TEST(TunedTable, CountsNothingWhereAllIsThere) {
  tuning::TuneResult one = result();
  one.rows.resize(1);
  EXPECT_THAT(tuned_table(one), Not(HasSubstr("more")));
}

TEST(TunedTable, SaysThatBeladyIsNoBound) {
  const std::vector<std::string> all = lines(tuned_table(result()));
  EXPECT_THAT(all[4], Not(HasSubstr("no bound")));
  for (const std::size_t belady : {5U, 6U}) EXPECT_THAT(all[belady], HasSubstr("always, no bound"));
}

TEST(TunedTable, SaysWhyBeladyIsBeaten) {
  tuning::TuneResult beaten = result();
  EXPECT_THAT(tuned_table(beaten), Not(HasSubstr("fewer rows"))) << "all hit as many";
  beaten.rows[2].outcome.cache.rows_hit = 6;
  EXPECT_THAT(tuned_table(beaten), HasSubstr("\nbelady hits fewer rows than arc: it keeps"));
  beaten.rows[2].cache.tokens = 1;
  EXPECT_THAT(tuned_table(beaten), Not(HasSubstr("fewer rows"))) << "in a larger cache";
  beaten.rows[2].cache.tokens = 0;
  beaten.rows[6].outcome.cache.rows_hit = 6;
  EXPECT_THAT(tuned_table(beaten), Not(HasSubstr("fewer rows"))) << "of clusters, not of blocks";
}

TEST(TunedRows, HaveNoRatioWhereNothingCouldBeHit) {
  const tuning::TuneResult some = result();
  EXPECT_EQ(tuned_object(some, some.rows.front())["optimum_ratio"], 0.5);
  EXPECT_TRUE(tuned_object(some, some.without_cache)["optimum_ratio"].is_null());
  tuning::TunedRow hopeless = some.rows.front();
  hopeless.optimum_rows = 0;
  EXPECT_TRUE(tuned_object(some, hopeless)["optimum_ratio"].is_null());
}

tuning::TuneResult timed(double none, const std::vector<std::pair<const char*, double>>& rows) {
  tuning::TuneResult made;
  made.without_cache.cache.policy = "none";
  made.without_cache.outcome.seconds = none;
  for (const auto& [policy, seconds] : rows) {
    made.rows.push_back(row(policy, CacheGranularity::block, policy == std::string("belady")));
    made.rows.back().outcome.seconds = seconds;
  }
  return made;
}

TEST(Recommended, IsTheSimplestOfATie) {
  const auto result = timed(2, {{"arc", 1},
                                {"lfu", 1.001},
                                {"sieve", 1.009},
                                {"lfu", 1.0095},
                                {"lru", 1.011},
                                {"belady", 0.5}});
  EXPECT_EQ(result.recommended().cache.policy, "lfu") << "lru is not tied, belady is no choice";
  EXPECT_EQ(result.recommended().outcome.seconds, 1.001) << "with its best settings";
  EXPECT_THAT(result.tied_policies(), ElementsAre("arc", "sieve"));
  std::vector<bool> tied;
  for (const tuning::TunedRow& each : result.rows) {
    tied.push_back(tuned_object(result, each)["tied_with_best"].get<bool>());
  }
  EXPECT_THAT(tied, ElementsAre(true, true, true, true, false, false));
  EXPECT_THAT(tuning::describe_tie(result), HasSubstr("arc and sieve tie with it within 1 %. "));
  EXPECT_THAT(tuning::describe_tie(timed(1.01, {{"lru", 1}, {"arc", 1.5}})),
              HasSubstr("lru ties with it"));
  const std::vector<std::string> table = lines(tuned_table(result));
  EXPECT_THAT(table[2], testing::EndsWith(" 0.500   ="));
  EXPECT_THAT(table[5], testing::EndsWith(" 0.500"));
}

TEST(Recommended, MovesTheLeastAmongTiedChoicesOfItsPolicy) {
  auto result = timed(2, {{"lru", 1}, {"lru", 1.005}, {"lru", 1.009}, {"lru", 1.02}, {"lfu", 1}});
  for (std::size_t i = 0; i < 5; ++i) result.rows[i].outcome.bytes.refill = 100 - 10 * (i % 2) - i;
  EXPECT_EQ(result.recommended().outcome.seconds, 1.005) << "the fourth moves less, and is no tie";
  const std::vector<std::string> table = lines(tuned_table(result));
  EXPECT_THAT(table, testing::SizeIs(7)) << "of lru the best and the recommended one";
  EXPECT_EQ(table.back(), "2 more: --format json, or --report FILE");
}

TEST(Recommended, IsNoCacheWhereThatTies) {
  const auto result = timed(1.01, {{"lru", 1}, {"arc", 1.5}});
  EXPECT_TRUE(result.recommended().cache.none());
  EXPECT_THAT(result.tied_policies(), ElementsAre("lru"));
  EXPECT_FALSE(timed(1.02, {{"lru", 1}}).recommended().cache.none());
  EXPECT_EQ(tuning::describe_tie(timed(1.02, {{"lru", 1}, {"arc", 1.5}})), "");
}

}  // namespace
}  // namespace terrace::apps
