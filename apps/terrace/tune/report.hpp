// What `terrace tune` prints.
#pragma once

#include <string>

#include "document.hpp"
#include "terrace/tuning/tuner.hpp"

namespace terrace::apps {

/// Returns one element of "rows".
Json tuned_object(const tuning::TunedRow& row);

/// Returns the table for people: the best rows, the offline ones, and what no cache costs.
std::string tuned_table(const tuning::TuneResult& result);

}  // namespace terrace::apps
