#include "pcie/link_costs.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "pcie/questions.hpp"

namespace terrace::bench {
namespace {

Row rate(std::string name, double value) { return {.name = std::move(name), .value = value}; }

std::vector<Row> of_host() {
  return {rate("host_copy_host_to_device_268435456", 8e9),
          rate("host_copy_host_to_device_64", 64e6)};
}

/// Rows of a device on which kernels reach these rates at any size, to the device and back.
std::vector<Row> of_device(double kernel, double kernel_back = 8e10) {
  std::vector<Row> rows = of_host();
  rows.push_back(rate("host_to_device_memcpy_ce", 5e10));
  rows.push_back(rate(latency_row, 4e-6));
  for (const std::size_t bytes : scattered_row_bytes) {
    const double pieces_a_second = 2e6;
    const double engine = std::min(5e10, pieces_a_second * static_cast<double>(bytes));
    for (const auto& [way, by_kernel] :
         {std::pair{"host_to_device", kernel}, {"device_to_host", kernel_back}}) {
      rows.push_back(rate(fmt::format("kv_scatter_{}_ce_{}", way, bytes), engine));
      rows.push_back(rate(fmt::format("kv_scatter_{}_sm_{}", way, bytes), by_kernel));
    }
  }
  return rows;
}

void set(std::vector<Row>& rows, const char* name, double value) {
  std::ranges::find(rows, name, &Row::name)->value = value;
}

TEST(LinkCostsOfRows, AreTheHostsWhereThereIsNoDevice) {
  const auto costs = link_costs(of_host());
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->bandwidth, 8e9);
  EXPECT_EQ(costs->latency, 1e-6);
  EXPECT_EQ(costs->switch_over, 0);
  EXPECT_FALSE(link_costs({}));
}

TEST(LinkCostsOfRows, SwitchOverWhereTheEngineIsAsFastFromThereOn) {
  EXPECT_EQ(link_costs(of_device(4.5e10))->switch_over, 64 * 1024);
  EXPECT_EQ(link_costs(of_device(4.5e10))->bandwidth, 5e10);
  EXPECT_EQ(link_costs(of_device(1e9))->switch_over, 512);
  EXPECT_EQ(link_costs(of_device(4.5e10, 1e9))->switch_over, 512) << "the way back is sooner";
  EXPECT_EQ(link_costs(of_device(6e10))->switch_over, 2 << 20) << "beyond what was measured";
}

TEST(LinkCostsOfRows, SwitchOverByNoOneFigureThatIsOff) {
  std::vector<Row> rows = of_device(4.5e10);
  set(rows, "kv_scatter_host_to_device_ce_128", 9e10);
  EXPECT_EQ(link_costs(rows)->switch_over, 64 * 1024);
  set(rows, "kv_scatter_host_to_device_sm_1048576", 5.02e10);
  EXPECT_EQ(link_costs(rows)->switch_over, 64 * 1024) << "noise at the link's own rate";
}

}  // namespace
}  // namespace terrace::bench
