#include "terrace/tuning/chart.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "terrace/policies/replacement.hpp"

namespace terrace::tuning {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Chart, HasAColourForEachPolicyAndTheirBound) {
  const std::size_t series = policies::replacement_policies().size() + 1;
  Chart chart;
  for (std::size_t i = 0; i < series; ++i) {
    const auto x = static_cast<double>(i);
    chart.series.push_back({.name = std::to_string(i), .points = {{x, 1}}, .joined = false});
  }
  const std::string drawn = draw(chart);
  std::set<std::string> colours;
  const std::string fill = "r=\"4\" fill=\"";
  for (std::size_t at = 0; (at = drawn.find(fill, at)) != std::string::npos; ++at) {
    colours.insert(drawn.substr(at + fill.size(), 7));
  }
  EXPECT_EQ(colours.size(), series);
}

TEST(Chart, NamesCurvesTogetherThatWouldHideEachOther) {
  const std::vector<ChartPoint> points{{1, 2}, {3, 4}};
  const std::vector<ChartPoint> others{{1, 2}, {3, 3}};
  const std::string drawn =
      draw({.series = {{.name = "a", .points = points, .dashed = true},
                       {.name = "b", .points = others},
                       {.name = "c", .points = points},
                       {.name = "points", .points = points, .joined = false}}});
  for (const char* const name : {">a = c<", ">b<", ">points<"}) {
    EXPECT_THAT(drawn, HasSubstr(name));
  }
  EXPECT_THAT(drawn, Not(HasSubstr("dasharray=\"5 4\""))) << "one that can be had is among them";
}

TEST(Chart, BreaksLongListsOfNames) {
  Chart chart;
  for (const char* const name : {"policy_one", "policy_two", "policy_three", "policy_four"}) {
    chart.series.push_back({.name = name, .points = {{1, 2}}});
  }
  const std::string drawn = draw(chart);
  for (const char* const line :
       {">policy_one = policy_two = <", ">policy_three = <", ">policy_four<"}) {
    EXPECT_THAT(drawn, HasSubstr(line));
  }
}

/// The right end of text that is written from there to the left, of all such the smallest.
double left_of_numbers(const std::string& drawn) {
  constexpr double letter = 7;
  double least = 1e9;
  const std::regex number("<text x=\"([0-9.]+)\" y=\"[0-9.]+\" text-anchor=\"end\">([^<]*)<");
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), number), none; at != none; ++at) {
    least = std::min(least, std::stod((*at)[1]) - letter * static_cast<double>(at->length(2)));
  }
  return least;
}

TEST(Chart, LeavesRoomBetweenNumbersAndTheirLabel) {
  for (const double largest : {1.0, 123'456.0, 3e-7, 2.5e11}) {
    const std::string drawn =
        draw({.y_label = "ms a token", .series = {{.name = "a", .points = {{1, largest}}}}});
    EXPECT_THAT(drawn, HasSubstr("y=\"16.0\" text-anchor=\"middle\" transform=\"rotate(-90)\">ms"));
    EXPECT_GT(left_of_numbers(drawn), 20) << largest;
  }
}

}  // namespace
}  // namespace terrace::tuning
