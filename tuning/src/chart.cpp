#include "terrace/tuning/chart.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace terrace::tuning {
namespace {

constexpr double plot_width = 420;
constexpr double plot_height = 280;
constexpr double left_least = 70;    // a label along the axis, and numbers at it
constexpr double right_least = 150;  // the names of the series
constexpr double top = 30;
constexpr double bottom = 50;
constexpr double label_width = 24;
constexpr double line_height = 16;
constexpr double sample_width = 28;  // of a line, before its name
constexpr double letter_width = 7.5;
constexpr std::size_t name_letters = 24;  // in a line of names that share a series
// One for each curve of a tuning of blocks: the replacement policies and their bound. The last two
// differ from all others in lightness, which readers with red-green blindness see, too.
constexpr std::array colours{"#0b6e99", "#c44e00", "#3a7d44", "#8e44ad", "#b8860b",
                             "#555555", "#d03050", "#2f4f9f", "#56b4e9", "#000000"};

/// Between the names of series that are drawn as one.
constexpr std::string_view joint = " = ";

const char* dashes_of(const ChartSeries& series) { return series.dashed ? "5 4" : "none"; }

/// Values of one axis and where they lie.
struct Axis {
  double low = 0;
  double high = 1;
  double step = 0.2;

  [[nodiscard]] double share(double value) const { return (value - low) / (high - low); }
  [[nodiscard]] int steps() const { return static_cast<int>(std::lround((high - low) / step)); }
  /// The value at a step; 0 is exactly that.
  [[nodiscard]] double tick(int i) const { return step * (std::round(low / step) + i); }
};

/// An axis with 0 on it and about five round steps.
Axis axis_over(double least, double largest) {
  if (!(largest > least)) return {};
  const double rough = (largest - least) / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  return {.low = std::floor(least / step) * step,
          .high = std::ceil(largest / step) * step,
          .step = step};
}

double width_of(std::string_view words) { return letter_width * static_cast<double>(words.size()); }

std::string tick_text(double value) { return fmt::format("{:.4g}", value); }

/// The lines that a series' name takes: one, or as many as the names that share it need.
std::vector<std::string> name_lines(std::string_view name) {
  std::vector<std::string> lines{""};
  while (!name.empty()) {
    const std::size_t end = std::min(name.find(joint), name.size());
    const std::size_t next = std::min(name.size(), end + joint.size());
    const std::string_view part = name.substr(0, next);
    if (!lines.back().empty() && lines.back().size() + end > name_letters) lines.emplace_back();
    lines.back() += part;
    name.remove_prefix(next);
  }
  return lines;
}

/// Whether two series are drawn over each other.
bool hide_each_other(const ChartSeries& a, const ChartSeries& b, const Axis& x, const Axis& y) {
  constexpr double visible_share = 0.0005;
  const auto same_place = [&](const ChartPoint& one, const ChartPoint& other) {
    return std::abs(x.share(one.x) - x.share(other.x)) < visible_share &&
           std::abs(y.share(one.y) - y.share(other.y)) < visible_share;
  };
  return a.joined == b.joined && std::ranges::equal(a.points, b.points, same_place);
}

struct ColouredSeries {
  ChartSeries series;
  std::string colour;
};

/// Series that would hide each other become one with all their names.
std::vector<ColouredSeries> visible_series(const Chart& chart, const Axis& x, const Axis& y,
                                           Palette& palette) {
  std::vector<ColouredSeries> visible;
  for (const ChartSeries& series : chart.series) {
    const std::string colour = palette.colour_of(series.name);
    const auto same = std::ranges::find_if(visible, [&](const ColouredSeries& other) {
      return hide_each_other(series, other.series, x, y);
    });
    if (same == visible.end()) {
      visible.push_back({series, colour});
      continue;
    }
    same->series.name.append(joint).append(series.name);
    same->series.dashed = same->series.dashed && series.dashed;
  }
  return visible;
}

class Drawing {
 public:
  Drawing(const Axis& x, const Axis& y, std::span<const ColouredSeries> all) : x_(x), y_(y) {
    for (int i = 0; i <= y.steps(); ++i) {
      left_ = std::max(left_, label_width + width_of(tick_text(y.tick(i))) + 6);
    }
    double legend = top;
    for (const auto& [series, colour] : all) {
      for (const std::string& line : name_lines(series.name)) {
        right_ = std::max(right_, sample_width + width_of(line));
        legend += line_height;
      }
    }
    height_ = std::max(height_, legend);
  }

  [[nodiscard]] double across(double x) const { return left_ + x_.share(x) * plot_width; }
  [[nodiscard]] double down(double y) const { return top + (1 - y_.share(y)) * plot_height; }

  void add(const std::string& element) { svg_ += element + "\n"; }

  void text(double x, double y, std::string_view words, const char* more = "") {
    add(fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>", x, y, more, escaped(words)));
  }

  void grid(const Chart& chart) {
    for (int i = 0; i <= y_.steps(); ++i) {
      const double y = y_.tick(i);
      add(
          fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
                      "stroke=\"#ddd\"/>",
                      left_, down(y), left_ + plot_width, down(y)));
      text(left_ - 6, down(y) + 4, tick_text(y), "text-anchor=\"end\"");
    }
    for (int i = 0; i <= x_.steps(); ++i) {
      const double x = x_.tick(i);
      text(across(x), top + plot_height + 16, fmt::format("{:.5g}", x), "text-anchor=\"middle\"");
    }
    text(left_, 18, chart.title, "font-weight=\"bold\"");
    text(left_ + plot_width / 2, top + plot_height + 40, chart.x_label, "text-anchor=\"middle\"");
    text(-(top + plot_height / 2), 16, chart.y_label,
         "text-anchor=\"middle\" transform=\"rotate(-90)\"");
  }

  void add(const ColouredSeries& coloured) {
    const auto& [series, colour] = coloured;
    std::string path;
    for (const ChartPoint& point : series.points) {
      path += fmt::format("{:.1f},{:.1f} ", across(point.x), down(point.y));
      add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>", across(point.x),
                      down(point.y), colour));
    }
    if (series.joined) {
      add(fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"{}\"/>", path,
          colour, dashes_of(series)));
    }
    name(coloured);
  }

  void mark(const ChartPoint& point) {
    add(
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8\" fill=\"none\" stroke=\"#000\" "
                    "stroke-width=\"2\"/>",
                    across(point.x), down(point.y)));
  }

  [[nodiscard]] std::string finish() const {
    return fmt::format(
        "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
        "xmlns=\"http://www.w3.org/2000/svg\">\n{2}</svg>\n",
        left_ + plot_width + right_, height_, svg_);
  }

 private:
  /// A sample of a series' line and points, and the name, right of the drawing.
  void name(const ColouredSeries& coloured) {
    const auto& [series, colour] = coloured;
    const double begin = left_ + plot_width;
    if (series.joined) {
      add(
          fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
                      "stroke-dasharray=\"{}\"/>",
                      begin + 7, named_to_, begin + 25, named_to_, colour, dashes_of(series)));
    }
    add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>", begin + 16,
                    named_to_, colour));
    for (const std::string& line : name_lines(series.name)) {
      text(begin + sample_width, named_to_ + 4, line);
      named_to_ += line_height;
    }
  }

  Axis x_;
  Axis y_;
  double left_ = left_least;
  double right_ = right_least;
  double height_ = top + plot_height + bottom;
  double named_to_ = top;
  std::string svg_;
};

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string html_page(std::string_view title, std::string_view body) {
  constexpr std::string_view style =
      "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111}"
      "table{border-collapse:collapse;font-size:13px}td,th{padding:2px 9px;text-align:right;"
      "border-bottom:1px solid #ddd}td:first-child,td:nth-child(2),th:first-child,"
      "th:nth-child(2){text-align:left}.best{font-weight:bold;background:#eef6ee}"
      "svg text{font:12px sans-serif}";
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>"
      "<style>{}</style></head><body>\n{}</body></html>\n",
      escaped(title), style, body);
}

std::string Palette::colour_of(const std::string& name) {
  auto found = std::ranges::find(names_, name);
  if (found == names_.end()) found = names_.insert(found, name);
  const auto number = static_cast<std::size_t>(found - names_.begin());
  if (number < colours.size()) return colours[number];
  // Steps of the golden angle never come back to a hue.
  constexpr double golden_degrees = 137.508;
  constexpr std::array lightness{40, 62, 25};
  const std::size_t more = number - colours.size();
  return fmt::format("hsl({:.1f},70%,{}%)",
                     std::fmod(golden_degrees * static_cast<double>(more), 360.0),
                     lightness[more % lightness.size()]);
}

std::string draw(const Chart& chart, Palette& palette) {
  double x_max = 0;
  double y_min = 0;
  double y_max = 0;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      x_max = std::max(x_max, point.x);
      y_min = std::min(y_min, point.y);
      y_max = std::max(y_max, point.y);
    }
  }
  const Axis x = axis_over(0, x_max);
  const Axis y = axis_over(y_min, y_max);
  const std::vector<ColouredSeries> visible = visible_series(chart, x, y, palette);
  Drawing drawing(x, y, visible);
  drawing.grid(chart);
  for (const ColouredSeries& series : visible) drawing.add(series);
  for (const ChartPoint& point : chart.marked) drawing.mark(point);
  return drawing.finish();
}

}  // namespace terrace::tuning
