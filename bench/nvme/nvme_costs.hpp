// The file's costs in a machine profile, from the rows of `terrace bench nvme`.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "harness/row.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::bench {

/// Names of the rows that costs are made of: reading and writing through the store, as stored
/// chunks are, and one small read at a time.
inline constexpr std::array<std::string_view, 3> nvme_cost_rows{
    "nvme_store_get_65536", "nvme_store_put_65536", "nvme_read_scattered_4096_d1"};

/// Returns the costs; nothing if one of the rows is missing or has no value.
[[nodiscard]] std::optional<NvmeCosts> nvme_costs(std::span<const Row> rows);

}  // namespace terrace::bench
