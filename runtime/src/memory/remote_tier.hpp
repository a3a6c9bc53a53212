// The servers that a runtime's prefixes go to, beside the store below the host.
#pragma once

#include <memory>

#include "terrace/runtime/options.hpp"
#include "terrace/tiers/remote_chunks.hpp"

namespace terrace {

/// Errors   invalid_argument: a URL that is none, a deadline of zero, or no store below the host
[[nodiscard]] Status check_remote_tier(const RuntimeOptions& options);

/// Returns the chunks of the servers that the options name; null where they name none, or no
/// prefixes are kept. It waits for no server.
///
/// Errors   those of check_remote_tier() and of offload::RemoteStore::open
[[nodiscard]] Result<std::shared_ptr<tiers::RemoteChunks>> open_remote_tier(
    const RuntimeOptions& options);

}  // namespace terrace
