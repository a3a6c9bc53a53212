#include "pcie/link_costs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include "pcie/questions.hpp"

namespace terrace::bench {
namespace {

std::optional<double> value_of(std::span<const Row> rows, std::string_view name) {
  const auto row = std::ranges::find(rows, name, &Row::name);
  return row == rows.end() ? std::nullopt : row->value;
}

/// Size from which on the engine is as fast one way; 0 without all rows. Near the link's own rate
/// the two differ by noise, so the kernel has to be clearly ahead.
double switch_over(std::span<const Row> rows, std::string_view way) {
  constexpr double clearly = 1.05;
  double found = 2 * static_cast<double>(std::ranges::max(scattered_row_bytes));
  for (const std::size_t bytes : std::views::reverse(scattered_row_bytes)) {
    const auto engine = value_of(rows, fmt::format("kv_scatter_{}_ce_{}", way, bytes));
    const auto kernel = value_of(rows, fmt::format("kv_scatter_{}_sm_{}", way, bytes));
    if (!engine || !kernel) return 0;
    if (*engine * clearly < *kernel) break;
    found = static_cast<double>(bytes);
  }
  return found;
}

}  // namespace

std::optional<LinkCosts> link_costs(std::span<const Row> rows) {
  const auto bandwidth = value_of(rows, "host_to_device_memcpy_ce");
  const auto latency = value_of(rows, latency_row);
  if (bandwidth && latency) {
    return LinkCosts{
        *bandwidth, *latency,
        std::min(switch_over(rows, "host_to_device"), switch_over(rows, "device_to_host"))};
  }
  const auto rate_of = [&](std::size_t bytes) {
    return value_of(rows, host_copy_row(Direction::host_to_device, bytes));
  };
  const auto bulk_rate = rate_of(bulk_bytes);
  const auto host_bandwidth = bulk_rate ? bulk_rate : rate_of(quick_bytes);
  const auto small_rate = rate_of(64);
  if (host_bandwidth && small_rate) return LinkCosts{*host_bandwidth, 64 / *small_rate};
  return std::nullopt;
}

}  // namespace terrace::bench
