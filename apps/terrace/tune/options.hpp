// The options of `terrace tune`.
#pragma once

#include <string>

#include "command.hpp"

namespace terrace::apps {

struct TuneOptions {
  SharedOptions shared;
  std::string trace;
  std::string model;
  std::string policies = "all";
  std::string config_target;
  std::string report_target;

  // Tiers of stored prefixes.
  std::string tiers;        ///< sizes, with commas between; empty = a cache is searched
  std::string load_rates;   ///< in the same order; empty = the profile's, or the usual ones
  std::string shape;        ///< empty = that of a model
  double prefill_rate = 0;  ///< tokens a second; 0 = not given
};

}  // namespace terrace::apps
