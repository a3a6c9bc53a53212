// `terrace bench pcie`: how fast KV rows cross the link between device and host.
#pragma once

#include "command.hpp"

namespace terrace::apps {

void add_bench_pcie(CLI::App& bench, Invocation& invocation);

}  // namespace terrace::apps
