// The backend that a config asks for.
#pragma once

#include "terrace/core/config.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

/// The objects that a backend gets in addition to the config. Pointers may be null.
struct BackendContext {
  WorkObserver* observer = nullptr;         ///< of what its queues do; outlives it
  const MachineProfile* profile = nullptr;  ///< of its link
  /// Whether queues of a device say how long they worked: it takes an event or two for each piece.
  bool times = true;
};

/// The options of every backend that a config names, within the limit of the container.
offload::BackendOptions backend_options(const Config& config, const BackendContext& context = {});

/// Errors: unsupported: a backend that is not built in or has no device.
Result<offload::ChosenBackend> choose_backend(const Config& config,
                                              const BackendContext& context = {});

/// Returns "host (auto: ...)", "cuda on NVIDIA H100 (asked for)".
std::string describe(const offload::BackendChoice& backend);

/// Makes the config's backend and drops it. Errors: those of choose_backend.
Result<offload::BackendChoice> find_backend(const Config& config);

}  // namespace terrace::apps
