// Whether a config can be run, found out before minutes of work.
#pragma once

#include <string>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::apps {

/// Returns the policies that retrieval.policy names: one, or several separated by commas.
/// Errors: those of split_names().
Result<std::vector<std::string>> policy_names(const Config& config);

/// Returns `config` with a policy that policy_names() has: a retrieval policy, or a retention
/// policy, which goes beside streaming.
Config with_policy(Config config, const std::string& name);
/// Returns the name of the policy that a config of with_policy() has.
std::string policy_name(const Config& config);

using MakeBackend = FunctionRef<Result<offload::ChosenBackend>(const Config&)>;

/// Gives a policy's options what no config holds.
using CompleteOptions = FunctionRef<Status(const Config&, RuntimeOptions&)>;

/// Opens a runtime for each policy, on a backend of its own, and drops it: a mistake in the last
/// policy's settings must not show after minutes of the first.
/// Errors: invalid_argument naming the key, what set it and what is known; the backend's; those of
/// `complete`.
Status check_policies(const Config& config, const KvShape& shape, MakeBackend make_backend,
                      CompleteOptions complete);

/// Checks what can be known of a config without a model and on any machine: also the keys of
/// policies that it does not name, for a run may.
/// Errors: invalid_argument naming the key, what set it and what is known.
Status check_config(const Config& config);

}  // namespace terrace::apps
