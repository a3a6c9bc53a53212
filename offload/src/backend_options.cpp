#include <algorithm>
#include <cmath>

#include "terrace/offload/container_limits.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::offload {
namespace {

HugePages huge_pages(const Config& config) {
  if (config.is("host.huge_pages", "on")) return HugePages::on;
  if (config.is("host.huge_pages", "off")) return HugePages::off;
  return HugePages::automatic;
}

/// Caps a limit by the container's, beyond which the system ends a process without a word.
std::size_t in_container(std::size_t limit) {
  return std::min(limit, read_container_limits().memory_bytes.value_or(SIZE_MAX));
}

std::size_t host_memory(const Config& config) {
  // The process's heap, the model and the system need some, too.
  if (config.is("host.memory", "auto")) return usable_memory() / 5 * 4;
  return in_container(config.size_bytes("host.memory"));
}

}  // namespace

BackendOptions BackendOptions::from(const Config& config) {
  const double bandwidth = config.bytes_per_second("link.bandwidth");
  BackendOptions options;
  // Device memory of backend host is the machine's, too.
  options.host = {.device_memory_limit = in_container(config.size_bytes("device.memory")),
                  .host_memory_limit = host_memory(config),
                  .device_threads = config.integer("threads.device"),
                  .link = {.bandwidth_bytes_per_second = std::isinf(bandwidth) ? 0 : bandwidth,
                           .latency = config.duration("link.latency")},
                  .huge_pages = huge_pages(config),
                  .enqueue_timeout = config.duration("deadline")};
  options.cuda = {.device_memory_limit = config.size_bytes("device.memory"),
                  .host_memory_limit = options.host.host_memory_limit,
                  .host_threads = options.host.device_threads,
                  .huge_pages = options.host.huge_pages,
                  .near_device = config.is("host.numa", "auto"),
                  .enqueue_timeout = options.host.enqueue_timeout};
  return options;
}

}  // namespace terrace::offload
