#include "tier_sizes.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "terrace/core/bytes.hpp"

namespace terrace::apps {

std::optional<std::string> fault_of_file_size(const Config& config) {
  if (config.text("tier.nvme.path").empty()) return {};
  if (config.is("host.memory", "auto") || config.is("host.memory", "unlimited")) return {};
  const std::size_t file = config.size_bytes("tier.nvme.bytes");
  const std::size_t host = config.size_bytes("host.memory");
  if (file >= host) return {};
  return fmt::format(
      "tier.nvme.bytes, {}, is less than host.memory, {}: the file is full soon after rows begin "
      "to leave the host; give it several times as much",
      format_size(file), format_size(host));
}

std::optional<std::string> fault_of_daemon_memory(const Config& config) {
  if (config.source("daemon.memory").origin == ConfigOrigin::default_value) return {};
  const std::size_t file = config.size_bytes("tier.nvme.bytes");
  const std::size_t memory = config.size_bytes("daemon.memory");
  if (memory <= file) return {};
  return fmt::format(
      "daemon.memory, {}, is more than tier.nvme.bytes, {}: it has copies of the file's parts, and "
      "the rest of it stays empty; give the file more",
      format_size(memory), format_size(file));
}

}  // namespace terrace::apps
