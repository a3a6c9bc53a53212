#include "terrace/tuning/chart.hpp"

#include <gtest/gtest.h>

#include <set>

#include "terrace/policies/replacement.hpp"

namespace terrace::tuning {
namespace {

TEST(Chart, HasAColourForEachPolicyAndTheirBound) {
  const std::size_t series = policies::replacement_policies().size() + 1;
  Chart chart;
  for (std::size_t i = 0; i < series; ++i) {
    chart.series.push_back({.name = std::to_string(i), .points = {{1, 1}}, .joined = false});
  }
  const std::string drawn = draw(chart);
  std::set<std::string> colours;
  const std::string fill = "r=\"4\" fill=\"";
  for (std::size_t at = 0; (at = drawn.find(fill, at)) != std::string::npos; ++at) {
    colours.insert(drawn.substr(at + fill.size(), 7));
  }
  EXPECT_EQ(colours.size(), series);
}

}  // namespace
}  // namespace terrace::tuning
