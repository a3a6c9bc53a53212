#include "nvme/nvme_costs.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace terrace::bench {
namespace {

std::vector<Row> measured() {
  return {{.name = "nvme_store_get_65536", .value = 3e9},
          {.name = "nvme_store_put_65536", .value = 1e9},
          {.name = "nvme_read_scattered_4096_d1", .value = 4096 / 1e-4}};
}

TEST(NvmeCostsOfRows, AreOfTheStoreAndOfOneRead) {
  const auto costs = nvme_costs(measured());
  ASSERT_TRUE(costs.has_value());
  EXPECT_EQ(costs->read, 3e9);
  EXPECT_EQ(costs->write, 1e9);
  EXPECT_DOUBLE_EQ(costs->latency, 1e-4);
}

TEST(NvmeCostsOfRows, NeedAllTheirRowsWithFigures) {
  for (std::size_t i = 0; i < measured().size(); ++i) {
    std::vector<Row> rows = measured();
    rows[i].value.reset();
    EXPECT_FALSE(nvme_costs(rows).has_value());
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(nvme_costs(rows).has_value());
  }
}

}  // namespace
}  // namespace terrace::bench
