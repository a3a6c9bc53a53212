#include "terrace/offload/container_limits.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

namespace terrace::offload {
namespace {

namespace fs = std::filesystem;

/// A number in a file; nothing if the file has "max" or does not exist.
std::optional<double> number_in(const fs::path& file) {
  std::ifstream stream(file);
  double number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

/// The quota of version 2: "150000 100000", microseconds of CPU time in each period.
std::optional<double> cpus_in(const fs::path& file) {
  std::ifstream stream(file);
  double quota = 0;
  double period = 0;
  if (!(stream >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

/// Reads the limit of version 1 of control groups, where -1 means no limit.
std::optional<double> cpus_of_quota(const fs::path& folder) {
  const auto quota = number_in(folder / "cpu.cfs_quota_us");
  const auto period = number_in(folder / "cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

using Reader = std::function<std::optional<double>(const fs::path& folder)>;

/// The least that a group or one around it says, up to the folder that all groups lie in. A
/// container may see its own group as that folder.
std::optional<double> strictest(const fs::path& top, const fs::path& group, const Reader& read) {
  std::optional<double> least;
  for (fs::path below = group.relative_path();; below = below.parent_path()) {
    const auto found = read(top / below);
    if (found) least = std::min(least.value_or(*found), *found);
    if (below.empty()) return least;
  }
}

std::optional<double> least_of(const std::optional<double>& a, const std::optional<double>& b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

}  // namespace

ContainerLimits read_container_limits(const fs::path& root) {
  // Version 1 says "no limit" by a number near 2^63.
  constexpr double memory_max = 1e18;
  std::optional<double> memory;
  std::optional<double> cpus;
  std::ifstream groups(root / "proc/self/cgroup");
  // "0::/pod/app" of version 2, "4:memory:/pod/app" of version 1
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    const fs::path top = root / "sys/fs/cgroup";
    if (controllers == ",,") {
      memory = least_of(memory, strictest(top, group, [](const fs::path& folder) {
                          return number_in(folder / "memory.max");
                        }));
      cpus = least_of(cpus, strictest(top, group, [](const fs::path& folder) {
                        return cpus_in(folder / "cpu.max");
                      }));
    }
    if (controllers.find(",memory,") != std::string::npos) {
      memory = least_of(memory, strictest(top / "memory", group, [](const fs::path& folder) {
                          return number_in(folder / "memory.limit_in_bytes");
                        }));
    }
    if (controllers.find(",cpu,") != std::string::npos) {
      cpus = least_of(cpus, strictest(top / "cpu", group, cpus_of_quota));
    }
  }
  ContainerLimits limits{.cpus = cpus};
  if (memory && *memory < memory_max) limits.memory_bytes = static_cast<std::size_t>(*memory);
  return limits;
}

std::size_t usable_memory(const std::filesystem::path& root) {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  std::size_t machine = SIZE_MAX;
  if (pages > 0 && page_bytes > 0) {
    machine = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes);
  }
  return std::min(machine, read_container_limits(root).memory_bytes.value_or(SIZE_MAX));
}

}  // namespace terrace::offload
