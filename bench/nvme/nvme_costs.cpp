#include "nvme/nvme_costs.hpp"

#include <algorithm>

namespace terrace::bench {

std::optional<NvmeCosts> nvme_costs(std::span<const Row> rows) {
  std::array<double, nvme_cost_rows.size()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto row = std::ranges::find(rows, nvme_cost_rows[i], &Row::name);
    if (row == rows.end() || !row->value || !(*row->value > 0)) return std::nullopt;
    values[i] = *row->value;
  }
  constexpr double small_page_bytes = 4096;
  return NvmeCosts{.read = values[0], .write = values[1], .latency = small_page_bytes / values[2]};
}

}  // namespace terrace::bench
