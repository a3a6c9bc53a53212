// Line and point drawings as inline SVG, readable without colour, script or network.
#pragma once

#include <string>
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
  bool dashed = false;  ///< what cannot be had: bounds
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
  std::vector<ChartPoint> marked = {};  ///< ringed
};

std::string draw(const Chart& chart);

/// Returns text fit for HTML.
std::string escaped(std::string_view text);

}  // namespace terrace::tuning
