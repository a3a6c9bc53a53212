#include "harness/samples.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace terrace::bench {
namespace {

double quantile(std::span<const double> sorted, double q) {
  return sorted[static_cast<std::size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return quantile(samples, 0.5);
}

void put_samples(Row& row, std::vector<double> samples) {
  std::ranges::sort(samples);
  const double middle = quantile(samples, 0.5);
  row.value = middle;
  row.samples = samples.size();
  const double between = quantile(samples, 0.75) - quantile(samples, 0.25);
  row.spread = middle == 0 ? 0 : between / middle;
}

}  // namespace terrace::bench
