#include "terrace/tuning/chart.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "terrace/policies/replacement.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::tuning {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// The colours of a drawing's series, by their names in the legend.
std::map<std::string, std::string> colours_of(const std::string& drawn) {
  std::map<std::string, std::string> colours;
  const std::regex sample("r=\"4\" [^/]*?(?:fill|stroke)=\"([^\"]*)\"[^/]*/></svg>([^<]*)<");
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), sample), none; at != none; ++at) {
    colours[(*at)[2]] = (*at)[1];
  }
  return colours;
}

std::string draw_alone(const Chart& chart) {
  Palette palette;
  return draw(chart, palette);
}

/// A chart with a point for each name; no point hides another.
Chart chart_of(const std::vector<std::string>& names) {
  Chart chart;
  for (const std::string& name : names) {
    const auto x = static_cast<double>(chart.series.size());
    chart.series.push_back({.name = name, .points = {{x, 1}}, .joined = false});
  }
  return chart;
}

TEST(Chart, HasAColourForEachSeries) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back(std::to_string(i));
  std::set<std::string> colours;
  for (const auto& [name, colour] : colours_of(draw_alone(chart_of(names)))) colours.insert(colour);
  EXPECT_EQ(colours.size(), names.size());
}

TEST(Chart, GivesANameTheSameColourInAllOfAPage) {
  Palette palette;
  const auto first = colours_of(draw(chart_of({"one", "two", "three"}), palette));
  const auto second = colours_of(draw(chart_of({"none", "three", "one"}), palette));
  EXPECT_EQ(second.at("three"), first.at("three"));
  EXPECT_EQ(second.at("one"), first.at("one"));
  EXPECT_NE(second.at("none"), first.at("two"));
}

/// All names of a table of policies.
template <typename Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}

TEST(Palette, GivesAPolicyOneColourOnEveryPage) {
  std::vector<std::string> names = names_of(policies::retrieval_policies());
  for (std::string& name : names_of(policies::retention_policies())) names.push_back(name);
  for (const std::vector<std::string>& drawn_together :
       {names, names_of(policies::replacement_policies())}) {
    std::map<std::string, std::string> policies_by_colour;
    for (const std::string& name : drawn_together) {
      Palette one;
      Palette other;
      other.colour_of("something else");
      const std::string colour = one.colour_of(name);
      EXPECT_EQ(other.colour_of(name), colour) << name << " has no colour of its own: palette.cpp";
      EXPECT_EQ(other.colour_of(name + ", all entries"), colour);
      const auto [at, is_new] = policies_by_colour.emplace(colour, name);
      EXPECT_TRUE(is_new) << name << " has the colour of " << at->second;
    }
  }
}

/// The share of light that a colour "#rrggbb" gives.
double luminance(const std::string& colour) {
  constexpr std::array weights{0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += weights[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return sum;
}

TEST(Palette, StandsOutOnAWhiteAndOnADarkPage) {
  constexpr double least_contrast = 2.9;
  const double dark_page = luminance("#14181d");
  for (const auto& names :
       {names_of(policies::retrieval_policies()), names_of(policies::retention_policies()),
        names_of(policies::replacement_policies())}) {
    for (const std::string& name : names) {
      const double light = luminance(Palette().colour_of(name));
      EXPECT_GE(1.05 / (light + 0.05), least_contrast) << name;
      EXPECT_GE((light + 0.05) / (dark_page + 0.05), least_contrast) << name;
    }
  }
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

/// The numbers along an axis, from the first on: those at the left end with their right ends there.
std::vector<std::string> numbers_of(const std::string& drawn, const std::string& anchor) {
  std::vector<std::string> numbers;
  const std::regex number("class=\"soft\" text-anchor=\"" + anchor + "\">([^<]*)<");
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), number), none; at != none; ++at) {
    numbers.push_back((*at)[1]);
  }
  return numbers;
}

TEST(Chart, WritesNumbersInTheUnitsOfItsAxes) {
  const auto drawn = [](const ChartAxis& x, const ChartAxis& y, const ChartPoint& most) {
    return draw_alone({.x = x, .y = y, .series = {{.name = "a", .points = {{1, 0}, most}}}});
  };
  const std::string tokens =
      drawn({"capacity", AxisUnit::tokens}, {"hits", AxisUnit::share}, {10'000, 0.8});
  EXPECT_THAT(numbers_of(tokens, "middle"),
              ElementsAre("0", "2,000", "4,000", "6,000", "8,000", "10,000"));
  EXPECT_THAT(numbers_of(tokens, "end"), ElementsAre("0", "20", "40", "60", "80"));
  EXPECT_THAT(tokens, HasSubstr(">capacity, tokens<"));
  EXPECT_THAT(tokens, HasSubstr(">hits, %<"));
  EXPECT_THAT(tokens, HasSubstr("<title>a: 10,000 tokens; 80 %</title>"));
  const std::string times =
      drawn({"moved", AxisUnit::traffic_bytes}, {"time", AxisUnit::seconds}, {2.5e6, 4e-3});
  EXPECT_THAT(times, HasSubstr(">moved, MB<"));
  EXPECT_THAT(times, HasSubstr(">time, ms<"));
  const std::string rates = drawn({"size", AxisUnit::memory_bytes, /*doubling=*/true},
                                  {"rate", AxisUnit::bytes_per_second}, {1 << 20, 25e9});
  EXPECT_THAT(numbers_of(rates, "middle"),
              ElementsAre("1 B", "16 B", "256 B", "4 KiB", "64 KiB", "1 MiB"));
  EXPECT_THAT(rates, HasSubstr(">rate, GB/s<"));
}

TEST(Chart, DrawsNumbersThatAreNotCutOff) {
  constexpr double letter = 7;
  for (const double largest : {1.0, 123'456.0, 3e-7, 2.5e11}) {
    const std::string drawn = draw_alone({.series = {{.name = "a", .points = {{1, largest}}}}});
    const std::regex number("<text x=\"([0-9.]+)\" y=\"[0-9.]+\" [^>]*\"end\">([^<]*)<");
    for (std::sregex_iterator at(drawn.begin(), drawn.end(), number), none; at != none; ++at) {
      EXPECT_GE(std::stod((*at)[1]) - letter * static_cast<double>(at->length(2)), 0) << largest;
    }
  }
}

TEST(BarChart, WritesNoDigitsOfWhatIsNotSeen) {
  Palette palette;
  const std::string drawn =
      draw(BarChart{.axis = {.unit = AxisUnit::share},
                    .bars = {{.name = "full", .parts = {{"full", 6.2e-7}}},
                             {.name = "streaming", .parts = {{"streaming", 0.18}}}}},
           palette);
  EXPECT_THAT(drawn, HasSubstr(">0 %<"));
  EXPECT_THAT(drawn, HasSubstr(">18 %<"));
}

TEST(BarChart, StacksPartsAndSaysTheirSum) {
  Palette palette;
  const std::string drawn =
      draw(BarChart{.title = "Found",
                    .axis = {.label = "of all", .unit = AxisUnit::share},
                    .bars = {{.name = "asked for", .parts = {{"memory", 0.25}, {"nvme", 0.5}}},
                             {.name = "loss", .parts = {{"memory", -0.25}}}}},
           palette);
  EXPECT_THAT(drawn, HasSubstr(">75 %<"));
  EXPECT_THAT(drawn, HasSubstr(">-25 %<"));
  EXPECT_THAT(drawn, HasSubstr(">of all, %<"));
  std::vector<double> begins;
  std::vector<double> widths;
  const std::regex part("<rect x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\"");
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), part), none; at != none; ++at) {
    begins.push_back(std::stod((*at)[1]));
    widths.push_back(std::stod((*at)[2]));
  }
  ASSERT_EQ(widths.size(), 3U);
  EXPECT_NEAR(begins[1], begins[0] + widths[0], 0.11)
      << "the second part begins at the first's end";
  EXPECT_NEAR(widths[1], 2 * widths[0], 0.21);
  EXPECT_NEAR(begins[2] + widths[2], begins[0], 0.11) << "a loss ends where a gain begins";
}

}  // namespace
}  // namespace terrace::tuning
