#include "terrace/tuning/chart.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace terrace::tuning {
namespace {

constexpr double width = 640;
constexpr double height = 360;
constexpr double left = 70;
constexpr double right = 150;  // the names of the series
constexpr double top = 30;
constexpr double bottom = 50;
// As many as a tuning draws: the replacement policies and their bound. The last two stand apart
// from all others in lightness, which readers who tell no red from green see as well.
constexpr std::array colours{"#0b6e99", "#c44e00", "#3a7d44", "#8e44ad", "#b8860b",
                             "#555555", "#d03050", "#2f4f9f", "#56b4e9", "#000000"};

/// Dashes of a series' line: one that has the colour of an earlier series is dotted as well.
const char* dashes_of(const ChartSeries& series, std::size_t number) {
  if (number < colours.size()) return series.dashed ? "5 4" : "none";
  return series.dashed ? "5 3 1 3" : "1 3";
}

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

class Drawing {
 public:
  Drawing(const Axis& x, const Axis& y) : x_(x), y_(y) {}

  [[nodiscard]] double across(double x) const {
    return left + x_.share(x) * (width - left - right);
  }
  [[nodiscard]] double down(double y) const {
    return height - bottom - y_.share(y) * (height - top - bottom);
  }

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
                      left, down(y), width - right, down(y)));
      text(left - 6, down(y) + 4, fmt::format("{:.4g}", y), "text-anchor=\"end\"");
    }
    for (int i = 0; i <= x_.steps(); ++i) {
      const double x = x_.tick(i);
      text(across(x), height - bottom + 16, fmt::format("{:.5g}", x), "text-anchor=\"middle\"");
    }
    text(left, 18, chart.title, "font-weight=\"bold\"");
    text((left + width - right) / 2, height - 10, chart.x_label, "text-anchor=\"middle\"");
    text(-height / 2, 16, chart.y_label, "text-anchor=\"middle\" transform=\"rotate(-90)\"");
  }

  void series(const ChartSeries& series, std::size_t number) {
    const char* const colour = colours[number % colours.size()];
    std::string path;
    for (const ChartPoint& point : series.points) {
      path += fmt::format("{:.1f},{:.1f} ", across(point.x), down(point.y));
      add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>", across(point.x),
                      down(point.y), colour));
    }
    if (series.joined) {
      add(fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"{}\"/>", path,
          colour, dashes_of(series, number)));
    }
    const double y = top + 16 * static_cast<double>(number);
    if (series.joined) {
      add(fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-dasharray=\"{}\"/>",
          width - right + 7, y, width - right + 25, y, colour, dashes_of(series, number)));
    }
    add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>", width - right + 16,
                    y, colour));
    text(width - right + 28, y + 4, series.name);
  }

  void mark(const ChartPoint& point) {
    add(
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8\" fill=\"none\" stroke=\"#000\" "
                    "stroke-width=\"2\"/>",
                    across(point.x), down(point.y)));
  }

  [[nodiscard]] std::string finish() const {
    return fmt::format(
        "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "xmlns=\"http://www.w3.org/2000/svg\">\n{2}</svg>\n",
        width, height, svg_);
  }

 private:
  Axis x_;
  Axis y_;
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

std::string draw(const Chart& chart) {
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
  Drawing drawing(axis_over(0, x_max), axis_over(y_min, y_max));
  drawing.grid(chart);
  for (std::size_t i = 0; i < chart.series.size(); ++i) drawing.series(chart.series[i], i);
  for (const ChartPoint& point : chart.marked) drawing.mark(point);
  return drawing.finish();
}

}  // namespace terrace::tuning
