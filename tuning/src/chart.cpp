#include "terrace/tuning/chart.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "axis.hpp"
#include "terrace/tuning/page.hpp"

namespace terrace::tuning {
namespace {

constexpr double width = 430;  // of the coordinates; the page stretches a drawing to its column
constexpr double plot_height = 220;
constexpr double top = 26;  // for the label of the axis that goes up
constexpr double bottom = 44;
constexpr double right = 26;  // half of the last number at the axis below
constexpr double letter_width = 7.5;
constexpr double left_least = 40;

/// Between the names of series that are drawn as one.
constexpr std::string_view joint = " = ";

const char* dashes_of(const ChartSeries& series) { return series.dashed ? "5 4" : "none"; }

bool is_hollow(std::string_view name) { return name.find(", ") != std::string_view::npos; }

/// The look of a point: filled, or with a rim alone.
std::string paint(std::string_view name, std::string_view colour) {
  if (!is_hollow(name)) return fmt::format("fill=\"{}\"", colour);
  return fmt::format("class=\"hollow\" stroke=\"{}\" stroke-width=\"1.6\"", colour);
}

struct ColouredSeries {
  ChartSeries series;
  std::string colour;
};

/// Whether two series are drawn over each other.
bool hide_each_other(const ChartSeries& a, const ChartSeries& b, const Axis& x, const Axis& y) {
  constexpr double visible_share = 0.0005;
  const auto same_place = [&](const ChartPoint& one, const ChartPoint& other) {
    return std::abs(x.share(one.x) - x.share(other.x)) < visible_share &&
           std::abs(y.share(one.y) - y.share(other.y)) < visible_share;
  };
  return a.joined == b.joined && std::ranges::equal(a.points, b.points, same_place);
}

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

/// A sample of a series' line and points, and its name.
std::string legend_item(const ColouredSeries& coloured) {
  const auto& [series, colour] = coloured;
  const std::string line = series.joined
                               ? fmt::format(
                                     "<line x1=\"1\" y1=\"6\" x2=\"25\" y2=\"6\" stroke=\"{}\" "
                                     "stroke-width=\"1.8\" stroke-dasharray=\"{}\"/>",
                                     colour, dashes_of(series))
                               : std::string();
  return fmt::format(
      "<li><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\">{}<circle cx=\"13\" cy=\"6\" r=\"4\" "
      "{}/></svg>{}</li>\n",
      line, paint(series.name, colour), escaped(series.name));
}

class Drawing {
 public:
  Drawing(const Axis& x, const Axis& y) : x_(x), y_(y) {
    for (int i = 0; i <= y.steps(); ++i) {
      const auto letters = static_cast<double>(y.text_of_step(i).size());
      left_ = std::max(left_, letters * letter_width + 8);
    }
  }

  void grid() {
    for (int i = 0; i <= y_.steps(); ++i) {
      const double y = top + (1 - y_.share_of_step(i)) * plot_height;
      line(left_, y, width - right, y, "grid");
      text(left_ - 6, y + 4, y_.text_of_step(i), "class=\"soft\" text-anchor=\"end\"");
    }
    const double below = top + plot_height;
    for (int i = 0; i <= x_.steps(); ++i) {
      const double x = left_ + x_.share_of_step(i) * plot_width();
      line(x, below, x, below + 4, "axis");
      text(x, below + 18, x_.text_of_step(i), "class=\"soft\" text-anchor=\"middle\"");
    }
    text(0, 13, y_.label());
    text(left_ + plot_width() / 2, below + 38, x_.label(), "text-anchor=\"middle\"");
  }

  void lines(const ColouredSeries& coloured) {
    const auto& [series, colour] = coloured;
    if (!series.joined) return;
    std::string path;
    for (const ChartPoint& point : series.points) {
      path += fmt::format("{:.1f},{:.1f} ", across(point.x), down(point.y));
    }
    add(
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" "
                    "stroke-dasharray=\"{}\"/>",
                    path, colour, dashes_of(series)));
  }

  void points(const ColouredSeries& coloured) {
    const auto& [series, colour] = coloured;
    for (const ChartPoint& point : series.points) {
      add(
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" {}><title>{}: {}; {}</title>"
                      "</circle>",
                      across(point.x), down(point.y), paint(series.name, colour),
                      escaped(series.name), x_.text(point.x), y_.text(point.y)));
    }
  }

  void mark(const ChartPoint& point) {
    add(
        fmt::format("<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8\" fill=\"none\" "
                    "stroke-width=\"2\"/>",
                    across(point.x), down(point.y)));
  }

  [[nodiscard]] std::string finish(std::string_view title) const {
    return fmt::format(
        "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", width,
        top + plot_height + bottom, escaped(title), svg_);
  }

 private:
  [[nodiscard]] double plot_width() const { return width - left_ - right; }
  [[nodiscard]] double across(double x) const { return left_ + x_.share(x) * plot_width(); }
  [[nodiscard]] double down(double y) const { return top + (1 - y_.share(y)) * plot_height; }

  void add(const std::string& element) { svg_ += element + "\n"; }

  void line(double x1, double y1, double x2, double y2, const char* kind) {
    add(fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                    kind, x1, y1, x2, y2));
  }

  void text(double x, double y, std::string_view words, const char* more = "") {
    add(fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>", x, y, more, escaped(words)));
  }

  Axis x_;
  Axis y_;
  double left_ = left_least;
  std::string svg_;
};

/// The least and the largest of what `value` is of each point.
template <typename Value>
Axis axis_of(const Chart& chart, const ChartAxis& axis, Value&& value) {
  double least = 0;
  double largest = 0;
  bool first = true;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      const double one = value(point);
      least = first ? one : std::min(least, one);
      largest = first ? one : std::max(largest, one);
      first = false;
    }
  }
  return {axis, least, largest};
}

}  // namespace

std::string draw(const Chart& chart, Palette& palette) {
  const Axis x = axis_of(chart, chart.x, [](const ChartPoint& point) { return point.x; });
  const Axis y = axis_of(chart, chart.y, [](const ChartPoint& point) { return point.y; });
  const std::vector<ColouredSeries> visible = visible_series(chart, x, y, palette);
  Drawing drawing(x, y);
  drawing.grid();
  for (const ColouredSeries& series : visible) drawing.lines(series);
  for (const ColouredSeries& series : visible) drawing.points(series);
  for (const ChartPoint& point : chart.marked) drawing.mark(point);
  std::string legend;
  for (const ColouredSeries& series : visible) legend += legend_item(series);
  return fmt::format(
      "<figure><figcaption>{}</figcaption>\n{}<ul class=\"legend\">\n{}</ul></figure>\n",
      escaped(chart.title), drawing.finish(chart.title), legend);
}

}  // namespace terrace::tuning
