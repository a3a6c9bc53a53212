#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "axis.hpp"
#include "terrace/tuning/chart.hpp"
#include "terrace/tuning/page.hpp"

namespace terrace::tuning {
namespace {

constexpr double bars_width = 430;  // of the coordinates, as of other drawings
constexpr double bar_height = 18;
constexpr double bar_pitch = 26;
constexpr double bar_letter = 7.5;
constexpr double sum_width = 80;  // of the sum behind a bar

double sum_of(const Bar& bar) {
  double sum = 0;
  for (const BarPart& part : bar.parts) sum += part.value;
  return sum;
}

/// Parts below zero go to the left, all others to the right.
Axis axis_of_bars(const BarChart& chart) {
  double least = 0;  // a bar begins at 0
  double largest = 0;
  for (const Bar& bar : chart.bars) {
    double below = 0;
    double above = 0;
    for (const BarPart& part : bar.parts) (part.value < 0 ? below : above) += part.value;
    least = std::min(least, below);
    largest = std::max(largest, above);
  }
  return {chart.axis, least, largest, /*steps_wanted=*/4};
}

double names_width(const BarChart& chart) {
  double widest = 0;
  for (const Bar& bar : chart.bars) {
    widest = std::max(widest, bar_letter * static_cast<double>(bar.name.size()));
  }
  return std::min(widest + 12, bars_width / 2);
}

/// The names of parts that are seen and are not the bar's own, with their colours.
std::string legend_of_bars(const BarChart& chart, Palette& palette) {
  std::size_t parts = 0;
  for (const Bar& bar : chart.bars) parts = std::max(parts, bar.parts.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts; ++i) {
    for (const Bar& bar : chart.bars) {
      if (i >= bar.parts.size() || bar.parts[i].value == 0) continue;
      const std::string& name = bar.parts[i].name;
      if (name != bar.name && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::string items;
  for (const std::string& name : names) {
    items += fmt::format(
        "<li><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\"><rect x=\"7\" width=\"12\" "
        "height=\"12\" fill=\"{}\"/></svg>{}</li>\n",
        palette.colour_of(name), escaped(name));
  }
  return items.empty() ? items : fmt::format("<ul class=\"legend\">\n{}</ul>", items);
}

class BarDrawing {
 public:
  BarDrawing(const BarChart& chart, const Axis& axis)
      : axis_(axis), left_(names_width(chart)), width_(bars_width - left_ - sum_width) {}

  void grid(std::size_t bars) {
    const double below = bar_pitch * static_cast<double>(bars);
    for (int i = 0; i <= axis_.steps(); ++i) {
      const double x = left_ + axis_.share_of_step(i) * width_;
      svg_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"0\" x2=\"{0:.1f}\" y2=\"{1:.1f}\"/>\n"
          "<text x=\"{0:.1f}\" y=\"{2:.1f}\" class=\"soft\" text-anchor=\"middle\">{3}</text>\n",
          x, below + 2, below + 17, axis_.text_of_step(i));
    }
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                        left_ + width_ / 2, below + 36, escaped(axis_.label()));
    height_ = below + 42;
  }

  void add(const Bar& bar, Palette& palette) {
    svg_ += fmt::format("<text x=\"0\" y=\"{:.1f}\">{}</text>\n", down_ + 14, escaped(bar.name));
    double below = 0;
    double above = 0;
    for (const BarPart& part : bar.parts) {
      double& begin = part.value < 0 ? below : above;
      const double from = across(std::min(begin, begin + part.value));
      const double to = across(std::max(begin, begin + part.value));
      begin += part.value;
      svg_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\">"
          "<title>{}: {}</title></rect>\n",
          from, down_, to - from, bar_height, palette.colour_of(part.name), escaped(part.name),
          axis_.text(part.value));
    }
    const double sum = sum_of(bar);
    const double invisible = 1e-4 * std::abs(axis_.value_of_step(axis_.steps()));
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", across(above) + 5,
                        down_ + 14, axis_.text(std::abs(sum) < invisible ? 0 : sum));
    down_ += bar_pitch;
  }

  [[nodiscard]] std::string finish(std::string_view title) const {
    return fmt::format(
        "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
        bars_width, height_, escaped(title), svg_);
  }

 private:
  [[nodiscard]] double across(double value) const { return left_ + axis_.share(value) * width_; }

  Axis axis_;
  double left_;
  double width_;
  double down_ = 4;
  double height_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw(const BarChart& chart, Palette& palette) {
  BarDrawing drawing(chart, axis_of_bars(chart));
  drawing.grid(chart.bars.size());
  for (const Bar& bar : chart.bars) drawing.add(bar, palette);
  return fmt::format("<figure><figcaption>{}</figcaption>\n{}{}</figure>\n", escaped(chart.title),
                     drawing.finish(chart.title), legend_of_bars(chart, palette));
}

}  // namespace terrace::tuning
