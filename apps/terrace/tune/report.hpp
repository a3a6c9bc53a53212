// The output of `terrace tune`.
#pragma once

#include <string>

#include "document.hpp"
#include "terrace/tuning/tuner.hpp"

namespace terrace::apps {

/// Returns one element of "rows".
Json tuned_object(const tuning::TuneResult& result, const tuning::TunedRow& row);

/// Returns the table for people: the best row of each policy and kind of unit, the recommended one,
/// what no cache costs, and how many rows there are besides.
std::string tuned_table(const tuning::TuneResult& result);

}  // namespace terrace::apps
