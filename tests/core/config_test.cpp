#include "terrace/core/config.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

namespace terrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

const ConfigSource from_flag{.origin = ConfigOrigin::flag, .place = "--set"};
const ConfigSource from_file{.origin = ConfigOrigin::file, .place = "a.yaml:3"};

std::string refusal(std::string_view name, std::string_view text) {
  Config config;
  const Status status = config.set(name, text, from_flag);
  return status ? "accepted" : std::string(status.error().message());
}

TEST(ConfigKeys, AcceptTheirOwnDefaults) {
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(refusal(key.name, key.default_text), "accepted") << key.name;
  }
}

TEST(ConfigKeys, AcceptEachOfTheirWords) {
  for (const ConfigKey& key : config_keys()) {
    std::string_view words = key.words;
    while (!words.empty()) {
      const auto end = std::min(words.find('|'), words.size());
      EXPECT_EQ(refusal(key.name, words.substr(0, end)), "accepted") << key.name;
      words.remove_prefix(std::min(end + 1, words.size()));
    }
  }
}

TEST(ConfigKeys, HaveAMeaningAndAUniqueNameInLowerCase) {
  std::set<std::string_view> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(key.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_."), std::string_view::npos);
    EXPECT_THAT(std::string(key.meaning), Not(IsEmpty())) << key.name;
    EXPECT_LE(key.meaning.size(), 90U) << key.name;
  }
}

TEST(ConfigKeys, OfOneGroupStandTogether) {
  std::set<std::string_view> finished;
  std::string_view group;
  for (const ConfigKey& key : config_keys()) {
    const auto key_group = key.name.substr(0, key.name.find('.'));
    if (key_group == group) continue;
    finished.insert(group);
    group = key_group;
    EXPECT_FALSE(finished.contains(group)) << key.name;
  }
}

TEST(NearestConfigKey, MendsSlipsAndWrongGroups) {
  EXPECT_EQ(nearest_config_key("retreival.budget"), "retrieval.budget");
  EXPECT_EQ(nearest_config_key("cache.tokns"), "cache.tokens");
  EXPECT_EQ(nearest_config_key("budget"), "retrieval.budget");
  EXPECT_EQ(nearest_config_key("cache.granularty"), "cache.granularity");
  EXPECT_EQ(nearest_config_key("completely.elsewhere"), "");
  EXPECT_EQ(nearest_config_key(std::string(100'000, 'x')), "");
}

TEST(Config, StartsWithDefaults) {
  const Config config;
  EXPECT_EQ(config.text("retrieval.policy"), "signs");
  EXPECT_EQ(config.integer("pq.bits"), 6U);
  EXPECT_EQ(config.integer_or_auto("cache.tokens"), std::nullopt);
  EXPECT_THAT(config.integers_or_auto("planning.iterations"), ElementsAre(10U));
  EXPECT_EQ(config.number("retrieval.window_share"), 0.5);
  EXPECT_EQ(config.size_bytes("device.memory"), std::numeric_limits<std::size_t>::max());
  EXPECT_TRUE(std::isinf(config.bytes_per_second("link.bandwidth")));
  EXPECT_EQ(config.duration("deadline"), std::chrono::seconds(60));
  EXPECT_EQ(config.budget("retrieval.budget"),
            (TokenBudget{.kind = TokenBudget::Kind::share, .value = 0.1}));
  EXPECT_EQ(config.source("seed").origin, ConfigOrigin::default_value);
  EXPECT_TRUE(config.validate().has_value());
}

TEST(Config, GivesWhatWasSetAndWhereItCameFrom) {
  Config config;
  ASSERT_TRUE(config.set("device.memory", "1.5GiB", from_flag));
  ASSERT_TRUE(config.set("link.bandwidth", "25GB/s", from_flag));
  ASSERT_TRUE(config.set("link.latency", "2.5us", from_flag));
  ASSERT_TRUE(config.set("seed", "18446744073709551615", from_flag));
  ASSERT_TRUE(config.set("planning.iterations", "10,8,12", from_flag));
  EXPECT_EQ(config.size_bytes("device.memory"), std::size_t{3} << 29);
  EXPECT_EQ(config.bytes_per_second("link.bandwidth"), 25e9);
  EXPECT_EQ(config.duration("link.latency"), std::chrono::nanoseconds(2500));
  EXPECT_EQ(config.integer("seed"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_THAT(config.integers_or_auto("planning.iterations"), ElementsAre(10U, 8U, 12U));
  EXPECT_EQ(config.source("device.memory"), from_flag);
}

TEST(Config, LetsTheStrongerOriginWinInAnyOrder) {
  Config config;
  ASSERT_TRUE(config.set("cache.policy", "lfu", from_flag));
  ASSERT_TRUE(config.set("cache.policy", "none", from_file));
  EXPECT_EQ(config.text("cache.policy"), "lfu");
  ASSERT_TRUE(config.set("cache.policy", "lru", from_flag));
  EXPECT_EQ(config.text("cache.policy"), "lru");
}

TEST(Config, ChecksEvenAValueThatIsOverruled) {
  Config config;
  ASSERT_TRUE(config.set("pq.bits", "4", from_flag));
  EXPECT_FALSE(config.set("pq.bits", "many", from_file));
  EXPECT_EQ(config.integer("pq.bits"), 4U);
}

TEST(Config, RefusesWhatAKeyDoesNotAccept) {
  struct Case {
    const char* name;
    const char* text;
    const char* advice;
  };
  const Case cases[] = {
      {"pq.bits", "9", "an integer from 1 to 8"},
      {"pq.bits", "", "an integer from 1 to 8"},
      {"pq.bits", "6.0", "an integer from 1 to 8"},
      {"pq.bits", "0x6", "an integer from 1 to 8"},
      {"pq.bits", "99999999999999999999999", "an integer from 1 to 8"},
      {"retrieval.sink_tokens", "-1", "an integer from 0 to 1048576"},
      {"seed", "18446744073709551616", "from 0 to 2^64 - 1"},
      {"planning.iterations", "0", "integers from 1 to 1000, as 10 or 10,8,12 or auto"},
      {"planning.iterations", "10,,12", "integers from 1 to 1000"},
      {"planning.iterations", "10,", "integers from 1 to 1000"},
      {"cache.tokens", "automatic", "an integer from 0 to 4294967296 or auto"},
      {"retrieval.window_share", "1.5", "a number from 0 to 1"},
      {"retrieval.window_share", "nan", "a number from 0 to 1"},
      {"retrieval.budget", "0", "mass:0.95"},
      {"retrieval.budget", "1.1", "a share such as 0.1"},
      {"retrieval.budget", "mass:", "mass:0.95"},
      {"retrieval.budget", "10%", "a share such as 0.1"},
      {"device.memory", "0", "a size above 0 and below 16EiB such as 8GiB or unlimited"},
      {"device.memory", "8 parsecs", "a size above 0"},
      {"device.memory", "16EiB", "below 16EiB"},
      {"link.bandwidth", "25GB", "a rate above 0 and below 16EiB/s such as 25GB/s or unlimited"},
      {"link.bandwidth", "0GB/s", "a rate above 0"},
      {"link.latency", "10", "a time such as 10us"},
      {"link.latency", "-10us", "a time such as 10us"},
      {"deadline", "1e300h", "a time such as 10us"},
      {"backend", "cudda", "auto, host or cuda"},
      {"kv.dtype", "F16", "f16, bf16 or f32"},
      {"profile", "a\nb", "printable text"},
  };
  for (const Case& bad : cases) {
    const std::string message = refusal(bad.name, bad.text);
    EXPECT_THAT(message, StartsWith(std::string("--set: ") + bad.name + ": '")) << bad.text;
    EXPECT_THAT(message, HasSubstr(bad.advice)) << bad.text;
  }
}

TEST(Config, NamesTheNearestKeyForAnUnknownOne) {
  EXPECT_EQ(refusal("cache.polcy", "lru"),
            "--set: unknown key 'cache.polcy'; did you mean 'cache.policy'?");
  EXPECT_THAT(refusal("zzz.zzz.zzz", "1"), HasSubstr("terrace config explain"));
  EXPECT_THAT(refusal("", "1"), HasSubstr("unknown key ''"));
}

TEST(Config, KeepsMessagesToOneReadableLine) {
  std::string value(1'000'000, 'x');
  value.back() = '\n';
  const std::string message = refusal("pq.bits", value);
  EXPECT_LT(message.size(), 120U);
  EXPECT_THAT(message, HasSubstr("an integer from 1 to 8"));
  EXPECT_THAT(refusal("pq.bits", "\x1b[2J\n"), HasSubstr("'?[2J?'"));
}

TEST(Config, ShowsNoPassword) {
  Config config;
  const std::string url = "redis://me:p@ss@cache:6379";
  ASSERT_TRUE(config.set("tier.remote.url", url, from_flag));
  EXPECT_EQ(config.text("tier.remote.url"), url);
  EXPECT_EQ(config.visible_text("tier.remote.url"), "redis://***@cache:6379");
  EXPECT_EQ(config.visible_text("cache.policy"), config.text("cache.policy"));
  EXPECT_EQ(refusal("tier.remote.url", "redis://me:p@ss\n@cache").find("p@ss"), std::string::npos);
  EXPECT_EQ(without_password("redis://cache:1"), "redis://cache:1");
  EXPECT_EQ(without_password("secret@cache"), "***@cache");
  EXPECT_EQ(without_password(""), "");
}

TEST(Config, ShowsNoControlCharacters) {
  EXPECT_EQ(shown("a\x1b[2J\x7f"), "a?[2J?");
  EXPECT_EQ(shown("\xc2\x9b"
                  "2J \xc3\x9b \xc2\xa0"),
            "??2J \xc3\x9b \xc2\xa0")
      << "in UTF-8 the half behind 0x7f is two bytes";
}

TEST(Config, RefusesIterationLimitsThatCross) {
  Config config;
  ASSERT_TRUE(config.set("planning.iterations_min", "200", from_flag));
  const Status status = config.validate();
  ASSERT_FALSE(status);
  EXPECT_THAT(std::string(status.error().message()), HasSubstr("planning.iterations_max"));
}

TEST(ConfigDeathTest, StopsWhenTheProgramAsksForAnUnknownKey) {
  const Config config;
  EXPECT_DEATH(static_cast<void>(config.text("no.such.key")), "assertion failed");
  EXPECT_DEATH(static_cast<void>(config.integer("backend")), "assertion failed");
}

TEST(TokenBudget, CountsTokensWithoutLosingOneToRounding) {
  EXPECT_EQ(parse_token_budget("0.29").value().tokens(100), 29U);
  EXPECT_EQ(parse_token_budget("0.1").value().tokens(4095), 409U);
  EXPECT_EQ(parse_token_budget("0.001").value().tokens(10), 1U);
  EXPECT_EQ(parse_token_budget("1.0").value().tokens(77), 77U);
  EXPECT_EQ(parse_token_budget("1").value().tokens(77), 1U);
  EXPECT_EQ(parse_token_budget("2048").value().tokens(100), 2048U);
  EXPECT_EQ(parse_token_budget("mass:0.95").value().tokens(100), 100U);
  EXPECT_EQ(parse_token_budget("0.5").value().tokens(0), 1U);
}

TEST(TokenBudget, RefusesWhatIsNoBudget) {
  for (const char* text : {"", "0", "0.0", "-1", "-0.5", "1.5", "mass:0", "mass:2", "mass:x",
                           "tenth", "1e3", "0.1 ", "99999999999"}) {
    EXPECT_FALSE(parse_token_budget(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace terrace
