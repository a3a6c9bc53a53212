// The backend that a config asks for.
#pragma once

#include "terrace/core/config.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::apps {

/// Errors   invalid_argument: the simulator, which computes nothing; unsupported: a backend that is
///          not built in or has no device
Result<offload::ChosenBackend> choose_backend(const Config& config);

}  // namespace terrace::apps
