#include "backend_choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "container_limits.hpp"

namespace terrace::apps {
namespace {

offload::HugePages huge_pages(const Config& config) {
  if (config.is("host.huge_pages", "on")) return offload::HugePages::on;
  if (config.is("host.huge_pages", "off")) return offload::HugePages::off;
  return offload::HugePages::automatic;
}

}  // namespace

offload::BackendOptions backend_options(const Config& config, const BackendContext& context) {
  const double bandwidth = config.bytes_per_second("link.bandwidth");
  // Beyond a container's limit the system ends the program without a word.
  const std::size_t most = read_container_limits().memory_bytes.value_or(SIZE_MAX);
  offload::BackendOptions options;
  options.host = {.device_memory_limit = std::min(config.size_bytes("device.memory"), most),
                  .host_memory_limit = std::min(config.size_bytes("host.memory"), most),
                  .device_threads = config.integer("threads.device"),
                  .link = {.bandwidth_bytes_per_second = std::isinf(bandwidth) ? 0 : bandwidth,
                           .latency = config.duration("link.latency")},
                  .huge_pages = huge_pages(config),
                  .enqueue_timeout = config.duration("deadline"),
                  .observer = context.observer};
  options.cuda = {.device_memory_limit = config.size_bytes("device.memory"),
                  .host_memory_limit = options.host.host_memory_limit,
                  .host_threads = options.host.device_threads,
                  .huge_pages = options.host.huge_pages,
                  .near_device = config.is("host.numa", "auto"),
                  .enqueue_timeout = options.host.enqueue_timeout,
                  .observer = context.observer};
  if (context.profile != nullptr && context.profile->link) {
    options.cuda.switch_over_bytes = static_cast<std::size_t>(context.profile->link->switch_over);
  }
  return options;
}

Status check_decodes(const Config& config) {
  if (!config.is("backend", "sim")) return {};
  return fail(Errc::invalid_argument, "backend sim knows costs only and cannot decode; use host");
}

Result<offload::ChosenBackend> choose_backend(const Config& config, const BackendContext& context) {
  TERRACE_TRY(check_decodes(config));
  return offload::make_backend(config.text("backend"), backend_options(config, context));
}

std::string describe(const offload::BackendChoice& backend) {
  return fmt::format("{}{}{} ({})", backend.name, backend.device.empty() ? "" : " on ",
                     backend.device, backend.reason);
}

Result<offload::BackendChoice> find_backend(const Config& config) {
  return choose_backend(config).map(
      [](offload::ChosenBackend chosen) { return std::move(chosen.choice); });
}

}  // namespace terrace::apps
