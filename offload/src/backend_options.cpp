#include <cmath>

#include "terrace/offload/registry.hpp"

namespace terrace::offload {
namespace {

HugePages huge_pages(const Config& config) {
  if (config.is("host.huge_pages", "on")) return HugePages::on;
  if (config.is("host.huge_pages", "off")) return HugePages::off;
  return HugePages::automatic;
}

}  // namespace

BackendOptions BackendOptions::from(const Config& config) {
  const double bandwidth = config.bytes_per_second("link.bandwidth");
  BackendOptions options;
  options.host = {.device_memory_limit = config.size_bytes("device.memory"),
                  .host_memory_limit = config.size_bytes("host.memory"),
                  .device_threads = config.integer("threads.device"),
                  .link = {.bandwidth_bytes_per_second = std::isinf(bandwidth) ? 0 : bandwidth,
                           .latency = config.duration("link.latency")},
                  .huge_pages = huge_pages(config),
                  .enqueue_timeout = config.duration("deadline")};
  options.cuda = {.device_memory_limit = options.host.device_memory_limit,
                  .host_memory_limit = options.host.host_memory_limit,
                  .host_threads = options.host.device_threads,
                  .huge_pages = options.host.huge_pages,
                  .near_device = config.is("host.numa", "auto"),
                  .enqueue_timeout = options.host.enqueue_timeout};
  return options;
}

}  // namespace terrace::offload
