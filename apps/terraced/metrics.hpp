// The counters of a daemon in the text format of Prometheus.
#pragma once

#include <span>
#include <string>

#include "terrace/node/daemon_client.hpp"

namespace terrace::apps {

/// Returns a sample for each counter that has a metric; docs/daemon.md lists them. The names of
/// tenants are in none.
[[nodiscard]] std::string metrics_text(std::span<const node::DaemonCounter> counters);

}  // namespace terrace::apps
