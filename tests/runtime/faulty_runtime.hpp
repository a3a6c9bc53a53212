// A runtime on the host's backend; pieces of work and allocations fail as a test says.
#pragma once

#include <memory>
#include <utility>

#include "doubles/fault_backend.hpp"
#include "runtime/scenario.hpp"

namespace terrace::testing {

struct FaultyRuntime {
  explicit FaultyRuntime(const Scenario& scenario) {
    auto wrapped =
        doubles::FaultBackend::wrap(offload::HostBackend::create(scenario.backend).value());
    faults = wrapped.get();
    runtime = scenario.open(std::move(wrapped));
  }

  doubles::FaultBackend* faults;  ///< the runtime's
  std::unique_ptr<Runtime> runtime;
};

}  // namespace terrace::testing
