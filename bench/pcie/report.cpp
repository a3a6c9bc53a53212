#include "pcie/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include "terrace/tuning/chart.hpp"
#include "terrace/tuning/page.hpp"

namespace terrace::bench {
namespace {

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

tuning::Chart chart_of(std::span<const Row> rows, std::string_view prefix, const char* title,
                       const char* x_label) {
  tuning::Chart chart{
      .title = title,
      .x = {.label = x_label, .unit = tuning::AxisUnit::memory_bytes, .doubling = true},
      .y = {.label = "rate", .unit = tuning::AxisUnit::bytes_per_second}};
  for (const Row& row : rows) {
    const std::optional<SizedName> name = sized(row.name);
    if (!row.value || row.unit != "B/s" || !name || !name->series.starts_with(prefix)) continue;
    auto series = std::ranges::find(chart.series, name->series, &tuning::ChartSeries::name);
    if (series == chart.series.end()) {
      chart.series.push_back({.name = name->series, .points = {}});
      series = std::prev(chart.series.end());
    }
    series->points.push_back({name->bytes, *row.value});
  }
  return chart;
}

std::string line(const Row& row) {
  const auto ratio = row.ratio();
  const std::string rate = *row.value < 1e9 ? fmt::format("{:.4g} MB/s", *row.value / 1e6)
                                            : fmt::format("{:.4g} GB/s", *row.value / 1e9);
  const std::string figure = row.unit == "B/s" ? rate : fmt::format("{:.2f} µs", *row.value * 1e6);
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", tuning::escaped(row.name),
      tuning::escaped(figure),
      ratio ? fmt::format("{:.2f} × {}", *ratio, tuning::escaped(row.peer->name)) : "",
      fmt::format("±{:.0f} %, {} samples", 50 * row.spread, row.samples));
}

}  // namespace

std::string pcie_page(std::span<const Row> rows, std::string_view machine,
                      const tuning::PageOrigin& origin) {
  std::string page = fmt::format("<p>{}</p>\n", tuning::escaped(machine));
  tuning::Palette palette;
  std::string drawings;
  for (const auto& [prefix, title, x_label] :
       {std::tuple{"host_copy", "One piece", "size of the piece"},
        {"kv_", "Rows, scattered or side by side", "size of a row"}}) {
    const tuning::Chart chart = chart_of(rows, prefix, title, x_label);
    if (!chart.series.empty()) drawings += tuning::draw(chart, palette);
  }
  page += tuning::side_by_side(drawings);
  std::string lines;
  for (const Row& row : rows) {
    if (row.value) lines += line(row);
  }
  page += tuning::folded(
      "All rows",
      tuning::table("<tr><th>row</th><th>median</th><th>against</th><th>spread</th></tr>", lines,
                    /*word_columns=*/1),
      /*open=*/true);
  for (const std::string& line : not_measured(rows)) {
    page += fmt::format("<p>{}</p>\n", tuning::escaped(line));
  }
  return tuning::html_page("The link between device and host", origin, page);
}

}  // namespace terrace::bench
