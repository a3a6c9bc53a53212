#include "config_check.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "backend_choice.hpp"
#include "command.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/nearest_name.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/policies/retrieval.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::apps {

namespace {

/// Puts the file or the flag that set a key before a message that begins with the key: policies
/// know neither.
Error with_place(const Error& error, const Config& config) {
  std::string_view named;
  for (const ConfigKey& key : config_keys()) {
    if (key.name.size() > named.size() && error.message().starts_with(key.name)) named = key.name;
  }
  if (named.empty() || !is_set(config, named)) return error;
  return error.while_doing(config.source(named).place);
}

Status refuse_policy(std::string_view key, std::string_view asked, std::string_view meant,
                     std::span<const std::string_view> known) {
  return fail(Errc::invalid_argument, "{}: unknown policy '{}'{} (known are {})", key, shown(asked),
              meant.empty() ? "" : fmt::format("; did you mean {}?", meant),
              fmt::join(known, ", "));
}

/// Refuses a name that is neither of retrieval nor of retention: either may be listed.
Status check_policy_name(const std::string& asked) {
  std::vector<std::string_view> known;
  for (const auto& entry : policies::retrieval_policies()) known.push_back(entry.name);
  for (const auto& entry : policies::retention_policies()) known.push_back(entry.name);
  if (std::ranges::find(known, asked) != known.end()) return {};
  return refuse_policy("retrieval.policy", asked, nearest_name(asked, known), known);
}

/// Refuses an unknown policy of the cache. `none` is a policy; for other words that mean no, the
/// error suggests it.
Status check_cache_policy(const Config& config) {
  const std::string& asked = config.text("cache.policy");
  std::vector<std::string_view> known{"none"};
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.name == asked) return {};
    if (!entry.needs_foresight) known.push_back(entry.name);
  }
  if (asked == known.front()) return {};
  constexpr std::array<std::string_view, 5> words_for_none{"off", "no", "false", "disabled", "0"};
  const bool means_none = std::ranges::find(words_for_none, asked) != words_for_none.end();
  const std::string_view meant = means_none ? known.front() : nearest_name(asked, known);
  return refuse_policy("cache.policy", asked, meant, known);
}

/// Makes every retrieval policy, because keys of policies that are not named may be wrong, too.
Status check_all_policies(const Config& config, const KvShape& shape) {
  TERRACE_ASSIGN(const RuntimeOptions options, RuntimeOptions::from(config, shape));
  for (const auto& entry : policies::retrieval_policies()) {
    TERRACE_TRY(policies::make_retrieval_policy(entry.name, options.retrieval));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> policy_names(const Config& config) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  TERRACE_ASSIGN(const auto listed,
                 split_names("retrieval.policy", config.text("retrieval.policy")));
  for (const std::string& name : listed) {
    if (name != "all") {
      add(name);
      continue;
    }
    for (const auto& entry : policies::retrieval_policies()) add(entry.name);
  }
  return names;
}

Config with_values(Config config, std::initializer_list<KeyValue> values) {
  for (const auto& [key, text] : values) {
    const Status accepted = config.set(key, text, {ConfigOrigin::flag, "the command"});
    TERRACE_ASSERT(accepted.has_value());
  }
  return config;
}

Config with_policy(Config config, const std::string& name) {
  const auto is_named = [&](const auto& entry) { return entry.name == name; };
  if (!std::ranges::any_of(policies::retention_policies(), is_named)) {
    return with_values(std::move(config), {{"retrieval.policy", name}});
  }
  return with_values(std::move(config),
                     {{"retrieval.policy", "streaming"}, {"retention.policy", name}});
}

std::string policy_name(const Config& config) {
  const std::string& retention = config.text("retention.policy");
  const bool selects = retention == "none" || config.is("retention.dropped", "keep");
  return selects ? config.text("retrieval.policy") : retention;
}

Status check_policies(const Config& config, const KvShape& shape, MakeBackend make_backend,
                      FindGates find_gates) {
  const auto placed = [&](const Error& error) { return with_place(error, config); };
  TERRACE_ASSIGN(const std::vector<std::string> policies, policy_names(config).map_error(placed));
  TERRACE_TRY(check_cache_policy(config).map_error(placed));
  for (const std::string& policy : policies) {
    TERRACE_TRY(check_policy_name(policy).map_error(placed));
    const Config own = with_policy(config, policy);
    TERRACE_ASSIGN(offload::ChosenBackend chosen, make_backend(own));
    const auto opened =
        RuntimeOptions::from(own, shape)
            .and_then([&](RuntimeOptions options) -> Result<std::unique_ptr<Runtime>> {
              TERRACE_TRY(options.check_tiers());
              // No file is made or taken: another process may have it.
              options.below_host = {};
              options.prefixes = {};
              if (needs_gates(options)) {
                TERRACE_ASSIGN(options.retention.gates, find_gates(own));
              }
              return Runtime::open(options, std::move(chosen.backend));
            });
    if (opened) continue;
    Error error = placed(opened.error());
    if (error.code == Errc::unsupported) error.code = Errc::invalid_argument;  // chosen by the user
    return tl::unexpected(error);
  }
  return {};
}

Status check_config(const Config& config) {
  // Any shape will do, and the host's backend: what depends on model and machine is checked there.
  const KvShape shape{.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 64};
  TERRACE_TRY(check_policies(
      config, shape,
      [](const Config& own) { return offload::make_backend("host", backend_options(own)); },
      [&](const Config& /*own*/) { return make_plain_gates(shape); }));
  return check_all_policies(config, shape).map_error([&](const Error& error) {
    return with_place(error, config);
  });
}

}  // namespace terrace::apps
