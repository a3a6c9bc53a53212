// This machine, as far as reports name it.
#pragma once

#include <cstddef>
#include <string>

#include "terrace/core/config.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

struct Machine {
  std::string cpu;        ///< "unknown" where the system does not say
  std::string isa;        ///< instruction set that kernels use
  std::size_t cores = 1;  ///< physical
  std::size_t numa_nodes = 1;
  std::string gpu;  ///< name of the device that a command uses; empty = no device
};

/// Returns the CPU's name; "unknown" where the system does not say.
std::string cpu_name();

/// `gpu`: as Machine::gpu.
Machine read_machine(std::string gpu = {});

/// Whether a profile was measured on this CPU, with the instructions that kernels use now.
bool is_of(const MachineProfile& profile, const Machine& machine);

/// Returns a description of the link to the device: "memcpy", or "imitated 25GB/s 10us".
std::string describe_link(const Config& config);

}  // namespace terrace::apps
