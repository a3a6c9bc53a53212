// `terrace bench nvme`: how fast a disk moves pages.
#pragma once

#include "command.hpp"

namespace terrace::apps {

void add_bench_nvme(CLI::App& bench, Invocation& invocation);

}  // namespace terrace::apps
