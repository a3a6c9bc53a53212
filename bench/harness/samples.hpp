// The median and spread of many measurements of one figure.
#pragma once

#include <vector>

#include "harness/row.hpp"

namespace terrace::bench {

/// Returns the median. `samples` must not be empty.
double median(std::vector<double> samples);

/// Puts the samples' median, count and spread into a row. `samples` must not be empty.
void put_samples(Row& row, std::vector<double> samples);

}  // namespace terrace::bench
