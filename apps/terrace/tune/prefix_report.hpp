// The output of `terrace tune --memory`.
#pragma once

#include <string>
#include <vector>

#include "document.hpp"
#include "terrace/core/config.hpp"
#include "terrace/tuning/page.hpp"
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

/// Returns the lines above the table: requests, chunks, prefill and loads.
std::string prefix_head(const PrefixReport& report);

/// Returns what memory and file find together; empty with one tier.
std::string together_text(const PrefixReport& report);

/// Returns a tier's size for people: "8 GiB", "none" or "no limit".
std::string size_text(std::uint64_t bytes);

/// Returns a config with a choice's sizes. Errors: invalid_argument: no runtime has chunks such as
/// the trace's.
Result<std::string> prefix_config(const PrefixReport& report, const tuning::PrefixChoice& choice,
                                  const Config& config);

/// Returns a page with the choices drawn, the recommended config and the table.
std::string prefix_page(const PrefixReport& report, const Config& config,
                        const tuning::PageOrigin& origin);

Json prefix_document(const PrefixReport& report, const Config& config);

}  // namespace terrace::apps
