#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "terrace/tuning/chart.hpp"

namespace terrace::tuning {
namespace {

struct NamedColour {
  std::string_view name;
  std::string_view colour;
};

// Each has a contrast of 2.9 or more against both a white and a dark page. Retrieval and retention
// share drawings, replacement has its own: a colour may come once in either.
constexpr std::array named_colours{
    // Retrieval.
    NamedColour{"full", "#6c757d"},
    NamedColour{"streaming", "#8c96a3"},
    NamedColour{"oracle", "#b08900"},
    NamedColour{"pqcache", "#1c7ed6"},
    NamedColour{"qpq", "#845ef7"},
    NamedColour{"clusterkv", "#0ca678"},
    NamedColour{"wave", "#2f8f3f"},
    NamedColour{"quest", "#c2255c"},
    NamedColour{"infllm", "#e64980"},
    NamedColour{"sparq", "#1098ad"},
    NamedColour{"infinigen", "#a5552b"},
    NamedColour{"signs", "#e03e1a"},
    // Retention.
    NamedColour{"recent", "#8d6e63"},
    NamedColour{"h2o", "#6a9a1f"},
    NamedColour{"snapkv", "#ae3ec9"},
    NamedColour{"pyramidkv", "#d6608f"},
    NamedColour{"kvcrush", "#4f6bd8"},
    NamedColour{"chelsea", "#3d8fa8"},
    NamedColour{"smartkv", "#c77700"},
    NamedColour{"cam", "#9a6fb0"},
    // Replacement, admission, and what these are compared with.
    NamedColour{"lru", "#1c7ed6"},
    NamedColour{"lfu", "#e8590c"},
    NamedColour{"lrfu", "#ae3ec9"},
    NamedColour{"sieve", "#2f8f3f"},
    NamedColour{"s3fifo", "#1098ad"},
    NamedColour{"wtinylfu", "#a5552b"},
    NamedColour{"arc", "#c2255c"},
    NamedColour{"last_steps", "#845ef7"},
    NamedColour{"belady", "#b08900"},
    NamedColour{"bound", "#6c757d"},
    NamedColour{"no cache", "#8c96a3"},
    NamedColour{"always", "#0ca678"},
    NamedColour{"refill", "#d6608f"},
    // Tiers.
    NamedColour{"device", "#e8590c"},
    NamedColour{"memory", "#1c7ed6"},
    NamedColour{"nvme", "#0ca678"},
    NamedColour{"remote", "#845ef7"},
};

/// Colours of names that are no policies: paler than those above. Steps of the golden angle never
/// come back to a hue.
std::string hue(std::size_t number) {
  constexpr double first_degrees = 200;
  constexpr double golden_degrees = 137.508;
  constexpr std::array lightness{45, 58};
  return fmt::format("hsl({:.1f},45%,{}%)",
                     std::fmod(first_degrees + golden_degrees * static_cast<double>(number), 360.0),
                     lightness[number % lightness.size()]);
}

}  // namespace

std::string Palette::colour_of(const std::string& name) {
  const std::string_view first = std::string_view(name).substr(0, name.find(", "));
  const auto* const named = std::ranges::find(named_colours, first, &NamedColour::name);
  if (named != named_colours.end()) return std::string(named->colour);
  auto found = std::ranges::find(names_, name);
  if (found == names_.end()) found = names_.insert(found, name);
  return hue(static_cast<std::size_t>(found - names_.begin()));
}

}  // namespace terrace::tuning
