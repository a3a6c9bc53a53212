// The median and spread of many measurements of one figure.
#pragma once

#include <vector>

#include "harness/row.hpp"

namespace terrace::bench {

/// Returns the median. There must be a sample.
double median(std::vector<double> samples);

/// Puts the samples' median, count and spread into a row. There must be a sample.
void put_samples(Row& row, std::vector<double> samples);

}  // namespace terrace::bench
