// Settings by calls of C.
#include "terrace/core/config.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bindings_c/handles.hpp"

namespace terrace::testing {
namespace {

using ::testing::HasSubstr;

ConfigHandle defaults() {
  terrace_config* config = nullptr;
  EXPECT_OK(terrace_config_create(&config));
  return ConfigHandle(config);
}

std::string value_of(const ConfigHandle& config, const char* key) {
  const char* value = nullptr;
  EXPECT_OK(terrace_config_get(config.get(), key, &value));
  return value == nullptr ? "" : value;
}

class CConfigFile : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(::testing::TempDir()) / name;
    std::ofstream(path) << text;
    return path.string();
  }
  ConfigHandle config_ = defaults();
};

TEST(CConfig, BeginsWithTheDefaultsOfEachKey) {
  const ConfigHandle config = defaults();
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(value_of(config, std::string(key.name).c_str()), key.default_text) << key.name;
  }
}

TEST(CConfig, TakesAKeyOfTheCommandLine) {
  const ConfigHandle config = defaults();
  EXPECT_OK(terrace_config_set(config.get(), "cache.policy", "lfu"));
  EXPECT_EQ(value_of(config, "cache.policy"), "lfu");
}

TEST(CConfig, NamesAnUnknownKeyAndTheNearestOne) {
  const ConfigHandle config = defaults();
  expect_failure(terrace_config_set(config.get(), "cache.polcy", "lfu"), TERRACE_INVALID_ARGUMENT,
                 "cache.polcy");
  EXPECT_THAT(terrace_message(), HasSubstr("cache.policy"));
  const char* value = "left over";
  expect_failure(terrace_config_get(config.get(), "cache.polcy", &value), TERRACE_INVALID_ARGUMENT,
                 "cache.policy");
  EXPECT_EQ(value, nullptr);
}

TEST(CConfig, SaysWhatAKeyAcceptsAndKeepsTheOldValue) {
  const ConfigHandle config = defaults();
  expect_failure(terrace_config_set(config.get(), "pq.bits", "nine"), TERRACE_INVALID_ARGUMENT,
                 "pq.bits");
  EXPECT_THAT(terrace_message(), HasSubstr("1 to 8"));
  EXPECT_EQ(value_of(config, "pq.bits"), "6");
}

TEST_F(CConfigFile, MayBeYamlOrJson) {
  EXPECT_OK(terrace_config_load(config_.get(), write("c.yaml", "cache: {policy: arc}").c_str()));
  EXPECT_EQ(value_of(config_, "cache.policy"), "arc");
  EXPECT_OK(terrace_config_load(config_.get(), write("c.json", R"({"pq": {"bits": 4}})").c_str()));
  EXPECT_EQ(value_of(config_, "pq.bits"), "4");
}

TEST_F(CConfigFile, FailsWithItsNameAndLine) {
  const std::string wrong = write("wrong.yaml", "pq:\n  bits: 99\n");
  expect_failure(terrace_config_load(config_.get(), wrong.c_str()), TERRACE_INVALID_ARGUMENT,
                 "wrong.yaml:2");
  expect_failure(terrace_config_load(config_.get(), "/no/such/file"), TERRACE_IO_ERROR,
                 "/no/such/file");
}

TEST_F(CConfigFile, IsBeatenByWhatWasSet) {
  EXPECT_OK(terrace_config_set(config_.get(), "cache.policy", "lfu"));
  EXPECT_OK(terrace_config_parse(config_.get(), "cache.policy: arc", "text"));
  EXPECT_EQ(value_of(config_, "cache.policy"), "lfu");
}

TEST(CConfig, ReadsTheEnvironment) {
  const ConfigHandle config = defaults();
  ASSERT_EQ(setenv("TERRACE_PQ_BITS", "5", 1), 0);
  EXPECT_OK(terrace_config_load_environment(config.get()));
  EXPECT_EQ(value_of(config, "pq.bits"), "5");
  ASSERT_EQ(setenv("TERRACE_PQ_BITS", "many", 1), 0);
  expect_failure(terrace_config_load_environment(config.get()), TERRACE_INVALID_ARGUMENT,
                 "TERRACE_PQ_BITS");
  ASSERT_EQ(unsetenv("TERRACE_PQ_BITS"), 0);
}

TEST(CConfig, RefusesVariablesThatAreNearlyAKeys) {
  const ConfigHandle config = defaults();
  ASSERT_EQ(setenv("TERRACE_PQ_BITS", "5", 1), 0);
  ASSERT_EQ(setenv("TERRACE_CACHE_POLCY", "lfu", 1), 0);
  expect_failure(terrace_config_load_environment(config.get()), TERRACE_INVALID_ARGUMENT,
                 "TERRACE_CACHE_POLICY");
  EXPECT_EQ(value_of(config, "pq.bits"), "6");
  ASSERT_EQ(unsetenv("TERRACE_CACHE_POLCY"), 0);
  ASSERT_EQ(setenv("TERRACE_PORT", "tcp://10.0.0.1:80", 1), 0);
  EXPECT_OK(terrace_config_load_environment(config.get()));
  EXPECT_EQ(value_of(config, "pq.bits"), "5");
  ASSERT_EQ(unsetenv("TERRACE_PORT"), 0);
  ASSERT_EQ(unsetenv("TERRACE_PQ_BITS"), 0);
}

TEST(CConfig, ListsItsKeysAsJson) {
  const ConfigHandle config = defaults();
  EXPECT_OK(terrace_config_set(config.get(), "cache.policy", "lfu"));
  const char* text = nullptr;
  EXPECT_OK(terrace_config_keys(config.get(), &text));
  const auto keys = nlohmann::json::parse(text);
  ASSERT_EQ(keys.size(), config_keys().size());
  for (const auto& key : keys) {
    EXPECT_EQ(key.size(), 7U);
    const bool set = key.at("name") == "cache.policy";
    EXPECT_EQ(key.at("origin"), set ? "flag" : "default") << key;
    if (set) {
      EXPECT_EQ(key.at("value"), "lfu");
      EXPECT_EQ(key.at("place"), "terrace_config_set");
    }
  }
}

TEST(CConfig, ListsNoPassword) {
  const ConfigHandle config = defaults();
  EXPECT_OK(terrace_config_set(config.get(), "tier.remote.url", "redis://:secret@cache"));
  EXPECT_EQ(value_of(config, "tier.remote.url"), "redis://:secret@cache");
  const char* text = nullptr;
  EXPECT_OK(terrace_config_keys(config.get(), &text));
  EXPECT_THAT(text, HasSubstr("redis://***@cache"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("secret")));
}

TEST(CConfig, RefusesNull) {
  const ConfigHandle config = defaults();
  const char* text = nullptr;
  const auto refused = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "is NULL");
  };
  refused(terrace_config_create(nullptr));
  refused(terrace_config_load(nullptr, "file"));
  refused(terrace_config_load(config.get(), nullptr));
  refused(terrace_config_parse(nullptr, "", ""));
  refused(terrace_config_parse(config.get(), nullptr, ""));
  refused(terrace_config_parse(config.get(), "", nullptr));
  refused(terrace_config_load_environment(nullptr));
  refused(terrace_config_set(nullptr, "seed", "1"));
  refused(terrace_config_set(config.get(), nullptr, "1"));
  refused(terrace_config_set(config.get(), "seed", nullptr));
  refused(terrace_config_get(nullptr, "seed", &text));
  refused(terrace_config_get(config.get(), nullptr, &text));
  refused(terrace_config_get(config.get(), "seed", nullptr));
  refused(terrace_config_keys(nullptr, &text));
  refused(terrace_config_keys(config.get(), nullptr));
  terrace_config_close(nullptr);
}

}  // namespace
}  // namespace terrace::testing
