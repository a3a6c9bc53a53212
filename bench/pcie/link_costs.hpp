// The link's costs in a machine profile, from the rows of `terrace bench pcie`.
#pragma once

#include <optional>
#include <span>

#include "harness/row.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::bench {

/// Returns the costs of the device's link, or of the host's if no device was measured; nothing if
/// no rows are of either. A device's link switches from a kernel to its copy engine at the smallest
/// size of scattered rows from which on the engine's batches are as fast, in the direction where
/// this size is smaller; if the kernel is faster at all sizes, at twice the largest one.
std::optional<LinkCosts> link_costs(std::span<const Row> rows);

}  // namespace terrace::bench
