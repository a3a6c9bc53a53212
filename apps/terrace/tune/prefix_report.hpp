// The output of `terrace tune --memory`.
#pragma once

#include <string>
#include <vector>

#include "document.hpp"
#include "terrace/core/config.hpp"
#include "terrace/tuning/prefix_tuner.hpp"

namespace terrace::apps {

/// A tier, the config key of its size, and who says how fast it is read.
struct PrefixTierSetting {
  tuning::PrefixTier tier = {};
  std::string key;
  std::string rate_source = "assumed";
};

struct PrefixReport {
  tuning::PrefixTuneRequest request;
  std::vector<PrefixTierSetting> tiers;
  Config sizes;  ///< that were asked for
  tuning::PrefixTuneResult result;
};

std::string prefix_text(const PrefixReport& report);

Json prefix_document(const PrefixReport& report, const Config& config);

}  // namespace terrace::apps
