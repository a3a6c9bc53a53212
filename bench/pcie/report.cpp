#include "pcie/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "terrace/tuning/chart.hpp"

namespace terrace::bench {
namespace {

constexpr std::string_view style =
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111}"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:2px 9px;text-align:left;"
    "border-bottom:1px solid #ddd}svg text{font:12px sans-serif}";

/// A name such as kv_scatter_host_to_device_sm_256 is of a series and has a size.
struct SizedName {
  std::string series;
  double bytes = 0;
};

std::optional<SizedName> sized(const std::string& name) {
  const std::size_t last = name.rfind('_') + 1;
  std::uint64_t bytes = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + last, end, bytes);
  if (last == 0 || read.ptr != end || read.ec != std::errc()) return std::nullopt;
  return SizedName{name.substr(0, last - 1), static_cast<double>(bytes)};
}

tuning::Chart chart_of(std::span<const Row> rows, std::string_view prefix, const char* title) {
  tuning::Chart chart{
      .title = title, .x_label = "size, log2 of bytes", .y_label = "GB/s", .series = {}};
  for (const Row& row : rows) {
    const std::optional<SizedName> name = sized(row.name);
    if (!row.value || row.unit != "B/s" || !name || !name->series.starts_with(prefix)) continue;
    auto series = std::ranges::find(chart.series, name->series, &tuning::ChartSeries::name);
    if (series == chart.series.end()) {
      chart.series.push_back({.name = name->series, .points = {}});
      series = std::prev(chart.series.end());
    }
    series->points.push_back({std::log2(name->bytes), *row.value / 1e9});
  }
  return chart;
}

std::string line(const Row& row) {
  const auto ratio = row.ratio();
  const std::string figure = row.unit == "B/s" ? fmt::format("{:.2f} GB/s", *row.value / 1e9)
                                               : fmt::format("{:.2f} µs", *row.value * 1e6);
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", tuning::escaped(row.name),
      tuning::escaped(figure),
      ratio ? fmt::format("{:.2f} × {}", *ratio, tuning::escaped(row.peer->name)) : "",
      fmt::format("±{:.0f} %, {} samples", 50 * row.spread, row.samples));
}

}  // namespace

std::string pcie_page(std::span<const Row> rows, std::string_view machine) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Link</title>"
      "<style>{}</style></head><body>\n<h1>The link between device and host</h1>\n<p>{}</p>\n",
      style, tuning::escaped(machine));
  tuning::Palette palette;
  for (const auto& [prefix, title] :
       {std::pair{"host_copy", "One piece"}, {"kv_", "Rows, scattered or side by side"}}) {
    const tuning::Chart chart = chart_of(rows, prefix, title);
    if (!chart.series.empty()) page += tuning::draw(chart, palette);
  }
  page += "<table><tr><th>row</th><th>median</th><th>against</th><th>spread</th></tr>\n";
  for (const Row& row : rows) {
    if (row.value) page += line(row);
  }
  page += "</table>\n";
  for (const std::string& line : not_measured(rows)) {
    page += fmt::format("<p>{}</p>\n", tuning::escaped(line));
  }
  return page + "</body></html>\n";
}

}  // namespace terrace::bench
