// `terrace tune --memory`: what tiers of stored prefixes bring.
#pragma once

#include <CLI/App.hpp>

#include "command.hpp"
#include "tune/options.hpp"

namespace terrace::apps {

void add_prefix_options(CLI::App& command, TuneOptions& options);

/// Errors: invalid_argument naming an option that only tiers of prefixes have, if there is one.
Status refuse_prefix_options(const TuneOptions& options);

Result<int> tune_for_prefixes(const TuneOptions& options, const Settings& settings);

}  // namespace terrace::apps
