// The daemon of the node as the keeper of a runtime's prefixes.
#pragma once

#include <memory>

#include "plan/runtime_plan.hpp"
#include "terrace/tiers/chunk_keeper.hpp"

namespace terrace {

/// Errors   invalid_argument: daemon.socket beside servers, or a deadline of zero
[[nodiscard]] Status check_daemon_tier(const PrefixOptions& prefixes);

/// Returns the client of the daemon that the plan's options name; null where they name none, or no
/// model, or where a runtime with such options keeps no prefixes. It opens no connection.
///
/// Errors   invalid_argument: servers beside the daemon, a user that is not known, a
///          deadline of zero; those of node::DaemonChunks::create
[[nodiscard]] Result<std::shared_ptr<tiers::ChunkKeeper>> open_daemon_tier(const RuntimePlan& plan);

}  // namespace terrace
