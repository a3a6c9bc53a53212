// Pages of HTML with line and point drawings as inline SVG, readable without script or network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace terrace::tuning {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;
  bool joined = true;   ///< by a line; else points alone
  bool dashed = false;  ///< for bounds, which no cache reaches
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
  std::vector<ChartPoint> marked = {};  ///< ringed
};

/// The colours of a page: what has a name has the same colour in all its charts, and nothing else
/// has it.
class Palette {
 public:
  std::string colour_of(const std::string& name);

 private:
  std::vector<std::string> names_;
};

/// Returns the drawing. Series that would hide each other are one, named "a = b", in the colour of
/// the first.
std::string draw(const Chart& chart, Palette& palette);

/// Returns text fit for HTML.
std::string escaped(std::string_view text);

/// Returns a whole page; `title` is text, `body` is HTML. In tables the first two columns are
/// words.
std::string html_page(std::string_view title, std::string_view body);

}  // namespace terrace::tuning
