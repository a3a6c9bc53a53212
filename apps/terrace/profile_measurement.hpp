// The part of a machine profile that planning reads.
#pragma once

#include <string>

#include "terrace/core/config.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

/// The fits of a profile, by the setting that each holds for.
using PlanningFits = decltype(MachineProfile::compute);

/// Measures, for each policy that clusters, the cost of iterations that run beside the layers of a
/// model. `model_folder` empty = the bundled model.
Result<PlanningFits> measure_planning(const std::string& model_folder, const Config& config);

}  // namespace terrace::apps
