// Whether a config can be run, found out before minutes of work.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gates.hpp"
#include "terrace/core/config.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::apps {

/// Returns the policies that retrieval.policy names: one, or several separated by commas.
/// Errors: those of split_names().
Result<std::vector<std::string>> policy_names(const Config& config);

using KeyValue = std::pair<std::string_view, std::string_view>;

/// Returns `config` with other values, all of them known to be accepted.
Config with_values(Config config, std::initializer_list<KeyValue> values);

/// Returns `config` with a policy that policy_names() has: a retrieval policy, or a retention
/// policy, which goes beside streaming.
Config with_policy(Config config, const std::string& name);
/// Returns the name of the policy that a config of with_policy() has.
std::string policy_name(const Config& config);

using MakeBackend = FunctionRef<Result<offload::ChosenBackend>(const Config&)>;

/// Returns the gates for a policy that rates tokens by them.
using FindGates = FunctionRef<Result<SharedGates>(const Config&)>;

/// Opens a runtime for each policy, on a backend of its own, and drops it: a mistake in the last
/// policy's settings must not show after minutes of the first.
/// Errors: invalid_argument naming the key, what set it and what is known; the backend's; those of
/// `find_gates`.
Status check_policies(const Config& config, const KvShape& shape, MakeBackend make_backend,
                      FindGates find_gates);

/// Checks a config as far as possible without a model and on any machine. This includes keys of
/// policies that the config does not name, because a run may name them.
/// Errors: invalid_argument naming the key, what set it and what is known.
Status check_config(const Config& config);

}  // namespace terrace::apps
