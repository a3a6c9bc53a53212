// Drawings of lines, points and bars as inline SVG, each with its title and its legend.
#pragma once

#include <string>
#include <vector>

namespace terrace::tuning {

/// How the numbers of an axis are written. Values are in the unit named here.
enum class AxisUnit {
  number,
  tokens,
  share,             ///< 0 to 1; written in %
  percent,           ///< 0 to 100
  seconds,           ///< written in s, ms or µs
  traffic_bytes,     ///< written in GB, MB or kB
  memory_bytes,      ///< written in GiB, MiB or KiB
  bytes_per_second,  ///< written in GB/s or MB/s
};

struct ChartAxis {
  std::string label = {};
  AxisUnit unit = AxisUnit::number;
  bool doubling = false;  ///< each step along the axis is twice the last; for x, of memory_bytes
};

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
  std::string title = {};
  ChartAxis x = {};
  ChartAxis y = {};
  std::vector<ChartSeries> series = {};
  std::vector<ChartPoint> marked = {};  ///< ringed
};

/// A part of a bar. Values below zero are drawn to the left of it.
struct BarPart {
  std::string name;  ///< gives the colour
  double value = 0;
};

struct Bar {
  std::string name;
  std::vector<BarPart> parts;  ///< drawn one after the other
};

struct BarChart {
  std::string title = {};
  ChartAxis axis = {};
  std::vector<Bar> bars = {};
};

/// The colours of a page. A policy has one colour, on every page and in every drawing, and so has
/// a name that is a policy's with more behind a comma ("wave, all entries"). Any other name has a
/// colour that is the same in all drawings of a page, and that nothing else of the page has.
class Palette {
 public:
  std::string colour_of(const std::string& name);

 private:
  std::vector<std::string> names_;
};

/// Returns the drawing. Series that would hide each other are one, named "a = b", in the colour of
/// the first. A name with more behind a comma has hollow points. Each point says its values where
/// the pointer rests on it.
std::string draw(const Chart& chart, Palette& palette);

/// Returns bars below each other, with the sum of its parts behind each.
std::string draw(const BarChart& chart, Palette& palette);

}  // namespace terrace::tuning
