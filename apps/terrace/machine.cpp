#include "machine.hpp"

#include <fmt/core.h>

#include <fstream>

#include "terrace/kernels/isa.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::apps {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Machine read_machine(std::string gpu) {
  Machine machine{
      .cpu = cpu_name(), .isa = std::string(kernels::host::isa_in_use()), .gpu = std::move(gpu)};
  if (const auto topology = offload::Topology::discover()) {
    machine.cores = topology->core_count();
    machine.numa_nodes = topology->nodes().size();
  }
  return machine;
}

bool is_of(const MachineProfile& profile, const Machine& machine) {
  return profile.cpu == machine.cpu && profile.isa == machine.isa;
}

std::string describe_link(const Config& config) {
  const bool imitated = !config.is("link.bandwidth", "unlimited") ||
                        config.duration("link.latency") != Duration::zero();
  if (!imitated) return "memcpy";
  return fmt::format("imitated {} {}", config.text("link.bandwidth"), config.text("link.latency"));
}

}  // namespace terrace::apps
