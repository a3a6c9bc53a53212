// `terrace bench quality` and `terrace bench drift`.
#pragma once

#include "command.hpp"

namespace terrace::apps {

void add_quality_bench(CLI::App& bench, Invocation& invocation);
void add_drift_bench(CLI::App& bench, Invocation& invocation);

}  // namespace terrace::apps
