// The link's costs in a machine profile, from the rows of `terrace bench pcie`.
#pragma once

#include <optional>
#include <span>

#include "harness/row.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::bench {

/// Returns the costs of the device's link, or of the host's where no device was measured; none
/// without rows of either. A device's link switches over from a kernel to its copy engine at the
/// smallest size of scattered rows from which on the engine's batches are as fast, of the two ways
/// the one where that is sooner; at twice the largest size where the kernel is ahead even there.
std::optional<LinkCosts> link_costs(std::span<const Row> rows);

}  // namespace terrace::bench
