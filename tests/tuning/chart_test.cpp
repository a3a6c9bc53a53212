#include "terrace/tuning/chart.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "terrace/policies/replacement.hpp"

namespace terrace::tuning {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The colours of a drawing's series, by their names in the legend.
std::map<std::string, std::string> colours_of(const std::string& drawn) {
  std::map<std::string, std::string> colours;
  const std::regex sample("r=\"4\" fill=\"([^\"]*)\"/>\\s*<text [^>]*>([^<]*)<");
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), sample), none; at != none; ++at) {
    colours[(*at)[2]] = (*at)[1];
  }
  return colours;
}

std::string draw_alone(const Chart& chart) {
  Palette palette;
  return draw(chart, palette);
}

TEST(Chart, HasAColourForEachSeries) {
  // Policies that cache blocks and clusters, and the bounds of both; and more.
  for (const std::size_t series :
       {2 * (policies::replacement_policies().size() + 1), std::size_t{60}}) {
    Chart chart;
    for (std::size_t i = 0; i < series; ++i) {
      const auto x = static_cast<double>(i);
      chart.series.push_back({.name = std::to_string(i), .points = {{x, 1}}, .joined = false});
    }
    std::set<std::string> colours;
    for (const auto& [name, colour] : colours_of(draw_alone(chart))) colours.insert(colour);
    EXPECT_EQ(colours.size(), series);
  }
}

TEST(Chart, GivesANameTheSameColourInAllOfAPage) {
  const auto chart_of = [](const std::vector<const char*>& names) {
    Chart chart;
    for (const char* const name : names) {
      const auto x = static_cast<double>(chart.series.size());
      chart.series.push_back({.name = name, .points = {{x, 1}}});
    }
    return chart;
  };
  Palette palette;
  const auto first = colours_of(draw(chart_of({"lru", "lfu", "arc"}), palette));
  const auto second = colours_of(draw(chart_of({"none", "arc", "lru"}), palette));
  EXPECT_EQ(second.at("arc"), first.at("arc"));
  EXPECT_EQ(second.at("lru"), first.at("lru"));
  EXPECT_NE(second.at("none"), first.at("lfu"));
}

TEST(Chart, NamesCurvesTogetherThatWouldHideEachOther) {
  const std::vector<ChartPoint> points{{1, 2}, {3, 4}};
  const std::vector<ChartPoint> others{{1, 2}, {3, 3}};
  const std::string drawn =
      draw_alone({.series = {{.name = "a", .points = points, .dashed = true},
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
  const std::string drawn = draw_alone(chart);
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
        draw_alone({.y_label = "ms a token", .series = {{.name = "a", .points = {{1, largest}}}}});
    EXPECT_THAT(drawn, HasSubstr("y=\"16.0\" text-anchor=\"middle\" transform=\"rotate(-90)\">ms"));
    EXPECT_GT(left_of_numbers(drawn), 20) << largest;
  }
}

}  // namespace
}  // namespace terrace::tuning
