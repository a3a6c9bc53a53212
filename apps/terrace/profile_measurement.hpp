// The part of a machine profile that planning reads.
#pragma once

#include <string>

#include "terrace/core/config.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

/// Measures what the iterations of each policy that clusters may cost behind the layers of a model,
/// and puts the fits into `profile`. `model_folder` empty = the bundled model.
Status measure_planning(const std::string& model_folder, const Config& config,
                        MachineProfile& profile);

}  // namespace terrace::apps
