// The backend that a config asks for.
#pragma once

#include "terrace/core/config.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::apps {

/// What a config says of every backend.
offload::BackendOptions backend_options(const Config& config, WorkObserver* observer = nullptr);

/// Errors   invalid_argument: the simulator, which computes nothing; unsupported: a backend that is
///          not built in or has no device
/// `observer`, if any, sees what the backend's queues do, and must outlive it.
Result<offload::ChosenBackend> choose_backend(const Config& config,
                                              WorkObserver* observer = nullptr);

}  // namespace terrace::apps
