// `terrace bench serving`: what a batch of sequences costs an engine that serves them.
#pragma once

#include "command.hpp"

namespace terrace::apps {

void add_bench_serving(CLI::App& bench, Invocation& invocation);

}  // namespace terrace::apps
