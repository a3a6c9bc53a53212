#include "terrace/runtime/config.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

#include "core/temporary_folder.hpp"

namespace terrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::StartsWith;

std::string refusal(std::string_view yaml) {
  Config config;
  const Status status = apply_config_text(config, yaml, "a.yaml");
  return status ? "accepted" : std::string(status.error().message());
}

TEST(ConfigText, ReadsNestedAndDottedKeys) {
  Config config;
  ASSERT_TRUE(apply_config_text(config, "cache: {policy: lfu, tokens: 512}\npq.bits: 4\nseed: 7\n",
                                "a.yaml"));
  EXPECT_EQ(config.text("cache.policy"), "lfu");
  EXPECT_EQ(config.integer("cache.tokens"), 512U);
  EXPECT_EQ(config.integer("pq.bits"), 4U);
  EXPECT_EQ(config.source("pq.bits"),
            (ConfigSource{.origin = ConfigOrigin::file, .place = "a.yaml:2"}));
}

TEST(ConfigText, TakesWordsAsTheyAreWritten) {
  Config config;
  ASSERT_TRUE(apply_config_text(config,
                                "host.huge_pages: on\nretrieval.budget: mass:0.9\n"
                                "planning.iterations: 10,8\nprofile: \"\"\n",
                                "a.yaml"));
  EXPECT_TRUE(config.is("host.huge_pages", "on"));
  EXPECT_EQ(config.budget("retrieval.budget").kind, TokenBudget::Kind::mass);
}

TEST(ConfigText, TakesAKindOfBudgetAsAMap) {
  Config config;
  ASSERT_TRUE(apply_config_text(config, "retrieval:\n  budget: {mass: 0.95}\n", "a.yaml"));
  EXPECT_EQ(config.text("retrieval.budget"), "mass:0.95");
  for (const char* budget :
       {"{mass: 2}", "{mess: 0.95}", "{mass: 0.9, share: 0.1}", "{mass: {a: 1}}"}) {
    EXPECT_THAT(refusal(fmt::format("retrieval.budget: {}\n", budget)), StartsWith("a.yaml:1: "));
  }
}

TEST(ConfigText, SetsNothingWhenThereIsNothing) {
  for (const char* yaml :
       {"", "\n\n", "# only a comment\n", "---\n", "~", "\xef\xbb\xbf", "\t\n"}) {
    EXPECT_EQ(refusal(yaml), "accepted") << yaml;
  }
}

TEST(ConfigText, RefusesBadInputWithItsLine) {
  struct Case {
    std::string yaml;
    const char* begin;
    const char* says;
  };
  const Case cases[] = {
      {"seed: 1\nretreival:\n  budget: 0.1\n", "a.yaml:2: ", "unknown key 'retreival'"},
      {"retrieval:\n  buget: 0.1\n", "a.yaml:2: ", "did you mean 'retrieval.budget'?"},
      {"cache:\n  tokens: plenty\n", "a.yaml:2: cache.tokens: 'plenty'", "or auto"},
      {"pq:\n  bits: [6]\n", "a.yaml:2: ", "pq.bits needs one value"},
      {"pq:\n  bits: {a: 1}\n", "a.yaml:2: ", "pq.bits needs one value"},
      {"pq:\n  bits:\n", "a.yaml:2: ", "pq.bits needs one value, but has none"},
      {"cache: lru\n", "a.yaml:1: ", "cache needs keys below it"},
      {"cache:\n", "a.yaml:1: ", "cache needs keys below it"},
      {"cache: [a, b]\n", "a.yaml:1: ", "cache needs keys below it"},
      {"seed: 1\nseed: 2\n", "a.yaml:2: ", "given already in line 1"},
      {"pq: {bits: 1}\npq.bits: 2\n", "a.yaml:2: ", "given already in line 1"},
      {"- seed\n- 1\n", "a.yaml:1: ", "write KEY: VALUE"},
      {"just words\n", "a.yaml:1: ", "write KEY: VALUE"},
      {"seed: 1\n---\nseed: 2\n", "a.yaml:", "second document"},
      {"[a, b]: 1\n", "a.yaml:1: ", "this key is no word"},
      {"cache:\n\tpolicy: lru\n", "a.yaml:2: ", ""},
      {"cache: {policy: lru\n", "a.yaml:", "no YAML"},
      {"seed: *nowhere\n", "a.yaml:1: ", "no YAML"},
      {"cache: &loop\n  policy: *loop\n", "a.yaml:1: ", "anchors and aliases have no meaning"},
      {std::string("\x7f"
                   "ELF\0\1\2",
                   7),
       "a.yaml: ", "zero bytes"},
      {",1", "a.yaml:", ""},  // yaml-cpp finds an endless row of documents
      {"profile: \"a\nseed: 1\n", "a.yaml:", "no YAML"},
      {"cache:\n{policy: lru}\n", "a.yaml:2: ", "indent it"},
      {"cache:\n  policy:\n  'lru'\n", "a.yaml:3: ", "indent it"},
      {"seed: !!int 1\n", "a.yaml:1: ", "tags, anchors and aliases have no meaning"},
      {"isa: &a auto\nhost.huge_pages: *a\n", "a.yaml:1: ", "have no meaning"},
      {"&a\n", "a.yaml:1: ", "have no meaning"},
      {"\xef\xbb\xbf%Y\n", "a.yaml:1: ", "directives have no meaning"},
      {"seed: 1\n?\ncache.tokens\n: auto\n", "a.yaml:2: ", "no question mark"},
      {"cache:\n  \tpolicy: lru\n", "a.yaml:2: ", "with a tab"},
      {"# 1.2\n%YAML 1.2\n---\nseed: 1\n", "a.yaml:2: ", "directives have no meaning"},
      {"seed: 1\nprofile: \xff\n", "a.yaml:2: ", "no UTF-8"},
      {"seed: 1\nprofile: \"\xed\xa0\x80\"\n", "a.yaml:2: ", "no UTF-8"},
      {"# \x1b[2J\n", "a.yaml:1: ", "control characters"},
      {"# one\rseed: 1\n", "a.yaml:1: ", "control characters"},
      {std::string(50'000, '['), "a.yaml:", "no YAML"},
      {std::string(config_file_bytes_max + 1, '#'), "a.yaml: ", "larger than"},
  };
  for (const Case& bad : cases) {
    const std::string message = refusal(bad.yaml);
    EXPECT_THAT(message, StartsWith(bad.begin)) << bad.yaml.substr(0, 80);
    EXPECT_THAT(message, HasSubstr(bad.says)) << bad.yaml.substr(0, 80);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ConfigText, SurvivesEveryCutAndFlippedByteOfAGoodFile) {
  const std::string good = write_config(Config{});
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string broken = good;
    broken[i] = static_cast<char>(broken[i] ^ 0x15);
    static_cast<void>(refusal(broken));
    static_cast<void>(refusal(good.substr(0, i)));
  }
}

TEST(ConfigFiles, ReportWhatCannotBeRead) {
  Config config;
  for (const char* path : {"/nowhere/terrace.yaml", "/"}) {
    const Status status = apply_config_file(config, path);
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().code, Errc::io_error) << path;
    EXPECT_THAT(std::string(status.error().message()), StartsWith(path));
  }
  EXPECT_THAT(std::string(apply_config_file(config, "/dev/zero").error().message()),
              HasSubstr("larger than"));
}

TEST(ConfigFiles, KeepTheEndOfALongPathInMessages) {
  Config config;
  const Status status = apply_config_file(config, "/" + std::string(3000, 'd') + "/serve.yaml");
  EXPECT_THAT(std::string(status.error().message()), HasSubstr("ddd/serve.yaml: "));
}

TEST(ConfigEnvironment, NamesEveryKeyByAVariableOfItsOwn) {
  EXPECT_EQ(environment_name("planning.iterations_min"), "TERRACE_PLANNING_ITERATIONS_MIN");
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(environment_name(key.name)).second) << key.name;
  }
}

TEST(ConfigEnvironment, PassesOverOthersVariables) {
  Config config;
  const EnvironmentVariable environment[] = {{"HOME", "/root"}, {"TERRACE_FUZZ_STEPS", "10"}};
  EXPECT_TRUE(apply_environment(config, environment));
}

TEST(ConfigEnvironment, NamesVariablesThatSetNothing) {
  const EnvironmentVariable slips[] = {{"TERRACE_CACHE_POLCY", "lru"},
                                       {"TERRACE_PORT", "80"},
                                       {"TERRACE_CACHE_POLICY", "lfu"},
                                       {"OTHER_PORT", "80"},
                                       {"TERRACE_PORT_A_TCP", "x"}};
  Config config;
  EXPECT_TRUE(apply_environment(config, slips));
  EXPECT_EQ(config.text("cache.policy"), "lfu");
  const std::vector<std::string> lines = unknown_variables(slips);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0],
            "TERRACE_CACHE_POLCY: no key has this variable; did you mean TERRACE_CACHE_POLICY?");
  EXPECT_THAT(lines[1], StartsWith("TERRACE_PORT: no key has this variable"));
  EXPECT_THAT(lines[2], StartsWith("TERRACE_PORT_A_TCP: no key has this variable"));
}

TEST(ConfigEnvironment, RefusesSlips) {
  for (const auto& [name, meant] : {std::pair("TERRACE_CACHE_POLCY", "TERRACE_CACHE_POLICY"),
                                    std::pair("TERRACE_BUDGET", "TERRACE_RETRIEVAL_BUDGET"),
                                    std::pair("TERRACE_SEEDS", "TERRACE_SEED")}) {
    const EnvironmentVariable variables[] = {{"TERRACE_CACHE_TOKENS", "7"}, {name, "1"}};
    EXPECT_EQ(refuse_slips(variables).error().message(),
              fmt::format("{}: no key has this variable; did you mean {}?", name, meant));
  }
  for (const char* const others :
       {"TERRACE_CACHE_POLICY", "TERRACE_CONFIG", "TERRACE_CONFIG_FILE", "TERRACE_VLLM_MIN_TOKENS",
        "TERRACE_VLLM_BUDGET", "TERRACE_SEED", "TERRACE_FUZZ_STEPS", "TERRACE_REQUIRE_GPU",
        "TERRACE_PORT", "TERRACE_IP", "TERRACE_IMAGE_TAG", "TERRACE_", "CACHE_POLCY"}) {
    const EnvironmentVariable variables[] = {{others, "1"}};
    EXPECT_TRUE(refuse_slips(variables)) << others;
  }
}

TEST(ConfigEnvironment, KnowsThePluginsVariables) {
  const EnvironmentVariable both[] = {{"TERRACE_CONFIG", "plugin.yaml"},
                                      {"TERRACE_VLLM_MIN_TOKENS", "512"}};
  EXPECT_THAT(unknown_variables(both),
              ElementsAre("TERRACE_CONFIG: read by the vLLM plugin alone; name the "
                          "program's file in TERRACE_CONFIG_FILE"));
  const EnvironmentVariable with_file[] = {{"TERRACE_CONFIG", "plugin.yaml"},
                                           {"TERRACE_CONFIG_FILE", "terrace.yaml"}};
  EXPECT_THAT(unknown_variables(with_file), IsEmpty());
}

TEST(ConfigEnvironment, PassesOverTheVariablesOfAService) {
  const EnvironmentVariable service[] = {
      {"TERRACE_SERVICE_HOST", "10.0.0.1"},          {"TERRACE_SERVICE_PORT", "80"},
      {"TERRACE_SERVICE_PORT_HTTP", "80"},           {"TERRACE_PORT", "tcp://10.0.0.1:80"},
      {"TERRACE_PORT_80_TCP", "tcp://10.0.0.1:80"},  {"TERRACE_PORT_80_TCP_PROTO", "tcp"},
      {"TERRACE_CACHE_PORT_53_UDP_ADDR", "10.0.0.1"}};
  Config config;
  EXPECT_TRUE(apply_environment(config, service));
  EXPECT_TRUE(unknown_variables(service).empty());
  EXPECT_TRUE(refuse_slips(service));
}

TEST(ConfigEnvironment, RefusesValuesThatAreNotAccepted) {
  Config config;
  const EnvironmentVariable bad_value[] = {{"TERRACE_PQ_BITS", "lots"}};
  EXPECT_THAT(std::string(apply_environment(config, bad_value).error().message()),
              StartsWith("TERRACE_PQ_BITS: pq.bits: 'lots' is not accepted"));
}

TEST(ConfigEnvironment, ReadsTheProcess) {
  ASSERT_EQ(setenv("TERRACE_CONFIG_TEST", "a=b", 1), 0);
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [name, value] : process_environment()) variables.emplace_back(name, value);
  ASSERT_EQ(unsetenv("TERRACE_CONFIG_TEST"), 0);
  EXPECT_THAT(variables,
              IsSupersetOf({std::pair<std::string, std::string>("TERRACE_CONFIG_TEST", "a=b")}));
}

TEST(LoadConfig, PrefersFlagsToEnvironmentToFileToDefault) {
  const TemporaryFolder folder;
  const std::string file = folder.write("c.yaml", "cache.policy: from-file\npq.bits: 3\nseed: 1\n");
  const EnvironmentVariable environment[] = {
      {"TERRACE_CONFIG_FILE", file}, {"TERRACE_PQ_BITS", "4"}, {"TERRACE_SEED", "2"}};
  const auto config = load_config({.environment = environment, .flags = {"seed=3", "seed=4"}});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->text("cache.policy"), "from-file");
  EXPECT_EQ(config->integer("pq.bits"), 4U);
  EXPECT_EQ(config->integer("seed"), 4U);
  EXPECT_EQ(config->integer("pq.subspaces"), 2U);
  EXPECT_EQ(config->source("pq.bits").place, "TERRACE_PQ_BITS");
}

TEST(LoadConfig, PrefersTheNamedFileToTheVariables) {
  const TemporaryFolder folder;
  const std::string file = folder.write("c.yaml", "seed: 5\n");
  const EnvironmentVariable environment[] = {{"TERRACE_CONFIG_FILE", "/nowhere/terrace.yaml"}};
  const auto config = load_config({.file = file, .environment = environment});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->integer("seed"), 5U);
}

TEST(LoadConfig, RefusesFlagsWithoutValueAndContradictions) {
  EXPECT_THAT(std::string(load_config({.flags = {"seed"}}).error().message()),
              HasSubstr("write KEY=VALUE"));
  EXPECT_THAT(
      std::string(load_config({.flags = {"planning.iterations_min=999"}}).error().message()),
      HasSubstr("planning.iterations_max"));
}

TEST(WriteConfig, IsReadBackToTheSameValues) {
  Config config;
  const ConfigSource flag{.origin = ConfigOrigin::flag, .place = "--set"};
  ASSERT_TRUE(config.set("profile", R"(C:\odd "path" # not a comment: ~)", flag));
  ASSERT_TRUE(config.set("retrieval.policy", "null", flag));
  ASSERT_TRUE(config.set("retrieval.budget", "mass:0.95", flag));
  ASSERT_TRUE(config.set("link.bandwidth", "25GB/s", flag));
  ASSERT_TRUE(config.set("device.memory", "1.5 GiB", flag));
  ASSERT_TRUE(config.set("host.huge_pages", "off", flag));
  Config read;
  const Status status = apply_config_text(read, write_config(config), "written.yaml");
  ASSERT_TRUE(status) << status.error().message();
  for (const ConfigKey& key : config_keys()) EXPECT_EQ(read.text(key.name), config.text(key.name));
}

}  // namespace
}  // namespace terrace
