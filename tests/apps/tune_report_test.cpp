#include <gmock/gmock.h>

#include <sstream>
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

TEST(TunedRows, HaveNoRatioWhereNothingCouldBeHit) {
  const tuning::TuneResult some = result();
  EXPECT_EQ(tuned_object(some.rows.front())["optimum_ratio"], 0.5);
  EXPECT_TRUE(tuned_object(some.without_cache)["optimum_ratio"].is_null());
  tuning::TunedRow hopeless = some.rows.front();
  hopeless.optimum_rows = 0;
  EXPECT_TRUE(tuned_object(hopeless)["optimum_ratio"].is_null());
}

}  // namespace
}  // namespace terrace::apps
