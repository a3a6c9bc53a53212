// The report on clustering in a machine profile, for people and for programs.
#pragma once

#include <string>
#include <string_view>

#include "document.hpp"
#include "terrace/core/config.hpp"
#include "terrace/policies/iteration_planner.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

/// Returns fits, how far their samples are, and the iterations that the config's limits would give.
std::string profile_text(const MachineProfile& profile, const Config& config);
Json profile_object(const MachineProfile& profile, const Config& config);

/// Returns the fits of a cost model and how far their samples are, a line each.
std::string costs_text(const policies::CostModel& costs);

/// Warns on standard error of each fit of a cost model that is further from its samples than a plan
/// may be, and says how to measure again. `setting`: the setting of the cost model.
void warn_of_loose_fits(std::string_view setting, const policies::CostModel& costs, bool quiet);

/// Returns the coefficients and residuals of a cost model.
Json costs_object(const policies::CostModel& costs);

}  // namespace terrace::apps
