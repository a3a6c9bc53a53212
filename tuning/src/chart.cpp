#include "terrace/tuning/chart.hpp"

#include <fmt/format.h>

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
constexpr std::array colours{"#0b6e99", "#c44e00", "#3a7d44", "#8e44ad",
                             "#b8860b", "#555555", "#d03050", "#2f4f9f"};

/// Values of one axis and where they lie.
struct Axis {
  double low = 0;
  double high = 1;
  double step = 0.2;

  [[nodiscard]] double share(double value) const { return (value - low) / (high - low); }
};

/// An axis from 0 with about five round steps.
Axis axis_to(double largest) {
  if (!(largest > 0)) return {};
  const double rough = largest / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  return {.low = 0, .high = std::ceil(largest / step) * step, .step = step};
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
    for (double y = y_.low; y <= y_.high * 1.0001; y += y_.step) {
      add(
          fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
                      "stroke=\"#ddd\"/>",
                      left, down(y), width - right, down(y)));
      text(left - 6, down(y) + 4, fmt::format("{:.4g}", y), "text-anchor=\"end\"");
    }
    for (double x = x_.low; x <= x_.high * 1.0001; x += x_.step) {
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
      add(fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" {}/>", path, colour,
                      series.dashed ? "stroke-dasharray=\"5 4\"" : ""));
    }
    const double y = top + 16 * static_cast<double>(number);
    add(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>", width - right + 16,
                    y, colour));
    text(width - right + 26, y + 4, series.name);
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

std::string draw(const Chart& chart) {
  double x_max = 0;
  double y_max = 0;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      x_max = std::max(x_max, point.x);
      y_max = std::max(y_max, point.y);
    }
  }
  Drawing drawing(axis_to(x_max), axis_to(y_max));
  drawing.grid(chart);
  for (std::size_t i = 0; i < chart.series.size(); ++i) drawing.series(chart.series[i], i);
  for (const ChartPoint& point : chart.marked) drawing.mark(point);
  return drawing.finish();
}

}  // namespace terrace::tuning
