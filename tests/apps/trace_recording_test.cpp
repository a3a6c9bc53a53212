// The settings of a run survive in the config that a trace of it is tuned to.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "terrace/tuning/recorder.hpp"
#include "terrace/tuning/tuner.hpp"

namespace terrace::apps {
namespace {

const ConfigSource flag{ConfigOrigin::flag, "--set"};

/// Sets a key to something that is not its default.
void change(Config& config, const ConfigKey& key) {
  const std::string words(key.words);
  std::vector<std::string> texts{"2",    "3",   "256",   "512",   "0.25",
                                 "0.75", "5ms", "12MiB", "3GB/s", "elsewhere"};
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find('|', begin), words.size());
    texts.insert(texts.begin(), words.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& text : texts) {
    if (text != key.default_text && config.set(key.name, text, flag)) return;
  }
  FAIL() << "nothing that " << key.name << " accepts";
}

/// Every key changed, then recorded and written as the tuner does.
Config tuned_config_of(const Config& run) {
  const tuning::TuneResult result{.head = {.settings = tuning::settings_to_repeat(run)}};
  return tuning::tuned_config(result, tuning::TunedRow{}, 1 << 20);
}

bool is_of_the_machine(std::string_view key) {
  constexpr std::array groups{"backend", "deadline", "device.", "host.",
                              "isa",     "link.",    "profile", "threads."};
  return std::ranges::any_of(groups, [&](const char* group) { return key.starts_with(group); });
}

TEST(TraceSettings, OfEveryGroupSurviveFromTheTraceToTheTunedConfig) {
  Config run;
  for (const ConfigKey& key : config_keys()) change(run, key);
  const Config tuned = tuned_config_of(run);
  std::set<std::string_view> survived;
  for (const ConfigKey& key : config_keys()) {
    if (is_of_the_machine(key.name) || key.name.starts_with("cache.") || key.has_password) continue;
    EXPECT_EQ(tuned.text(key.name), run.text(key.name)) << key.name;
    survived.insert(key.name.substr(0, key.name.find('.')));
  }
  for (const char* const group :
       {"retrieval", "index", "pq", "qpq", "clusterkv", "wave", "signs", "quest", "infllm", "sparq",
        "infinigen", "planning", "kv", "placement", "seed", "stats"}) {
    EXPECT_TRUE(survived.contains(group)) << group;
  }
}

TEST(TraceSettings, OfTheMachineAndTheCacheStayBehind) {
  Config run;
  for (const ConfigKey& key : config_keys()) change(run, key);
  for (const auto& [key, text] : tuning::settings_to_repeat(run)) {
    EXPECT_FALSE(is_of_the_machine(key) || key.starts_with("cache.")) << key << ": " << text;
  }
}

TEST(TraceSettings, AtTheirDefaultsAreNotNamed) {
  EXPECT_TRUE(tuning::settings_to_repeat(Config{}).empty());
}

}  // namespace
}  // namespace terrace::apps
