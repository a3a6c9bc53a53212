#include "config_check.hpp"

#include <algorithm>

#include "backend_choice.hpp"
#include "command.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/policies/retrieval.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::apps {

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

Status check_policies(const Config& config, const KvShape& shape, MakeBackend make_backend) {
  TERRACE_ASSIGN(const std::vector<std::string> policies, policy_names(config));
  for (const std::string& policy : policies) {
    Config own = config;
    const Status named = own.set("retrieval.policy", policy, {ConfigOrigin::flag, "a list"});
    TERRACE_ASSERT(named.has_value());
    TERRACE_ASSIGN(offload::ChosenBackend chosen, make_backend(own));
    const auto opened =
        RuntimeOptions::from(own, shape).and_then([&](const RuntimeOptions& options) {
          return Runtime::open(options, std::move(chosen.backend));
        });
    if (opened) continue;
    Error error = opened.error();
    if (error.code == Errc::unsupported) error.code = Errc::invalid_argument;  // chosen by the user
    return tl::unexpected(error);
  }
  return {};
}

Status check_config(const Config& config) {
  TERRACE_TRY(check_decodes(config));
  // Any shape will do, and the host's backend: what depends on model and machine is checked there.
  const KvShape shape{.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 64};
  return check_policies(config, shape, [](const Config& own) {
    return offload::make_backend("host", backend_options(own));
  });
}

}  // namespace terrace::apps
