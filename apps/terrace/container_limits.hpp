// The limits that a container sets its processes, as the kernel tells them in files: control groups
// of version 2 or 1.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace terrace::apps {

struct ContainerLimits {
  std::optional<std::size_t> memory_bytes{};  ///< a process above it is killed without a message
  std::optional<double> cpus{};               ///< CPU time a second; 1.5: one and a half CPUs
};

/// Reads the strictest limits of this process's group and the groups around it. `root` is the
/// folder that holds proc/ and sys/.
ContainerLimits read_container_limits(const std::filesystem::path& root = "/");

}  // namespace terrace::apps
