// The limits that a container sets its processes, as the kernel tells them in files: control groups
// of version 2 or 1.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace terrace::offload {

struct ContainerLimits {
  std::optional<std::size_t> memory_bytes{};  ///< a process above it is killed without a message
  std::optional<double> cpus{};               ///< CPU time a second; 1.5: one and a half CPUs
};

/// Reads the strictest limits of this process's group and the groups around it. `root` is the
/// folder that holds proc/ and sys/.
ContainerLimits read_container_limits(const std::filesystem::path& root = "/");

/// Returns the bytes of memory that this process may use: the machine's, or the strictest limit of
/// its containers where that is less. The largest size_t where the system does not say.
std::size_t usable_memory(const std::filesystem::path& root = "/");

}  // namespace terrace::offload
