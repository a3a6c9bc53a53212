// The daemon's options as the config has them, and the file of quotas.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "listener.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/read_file.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {
namespace {

constexpr std::size_t quota_name_least = 8;
constexpr std::size_t quotas_bytes_most = std::size_t{1} << 20;

HugePages huge_pages_of(const Config& config) {
  if (config.is("daemon.huge_pages", "on")) return HugePages::reserved;
  return config.is("daemon.huge_pages", "off") ? HugePages::off : HugePages::advised;
}

Result<std::vector<std::uint32_t>> users_of(const std::string& list) {
  std::vector<std::uint32_t> users;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    std::erase(name, ' ');
    if (name.empty()) continue;
    const Result<std::uint32_t> user = user_number(name);
    if (!user) return tl::unexpected(user.error().while_doing("daemon.allow_users"));
    users.push_back(*user);
  }
  return users;
}

std::string socket_of(const Config& config) {
  const std::string& named = config.text("daemon.socket");
  return named.empty() ? default_socket() : named;
}

}  // namespace

std::string default_socket() {
  const char* const folder = std::getenv("XDG_RUNTIME_DIR");
  const bool has_folder = folder != nullptr && *folder == '/';
  return std::string(has_folder ? folder : "/run") + "/terrace/terraced.sock";
}

Result<TenantQuotas> TenantQuotas::from(const Config& config) {
  TenantQuotas quotas{.of_each = config.size_bytes("daemon.quota")};
  const std::string& path = config.text("daemon.quotas");
  if (path.empty()) return quotas;
  TERRACE_ASSIGN(const std::string text, read_file(path, quotas_bytes_most));
  TERRACE_ASSIGN(quotas.by_name, read(text, path));
  return quotas;
}

Result<std::map<std::string, std::uint64_t>> TenantQuotas::read(std::string_view text,
                                                                std::string_view name) {
  std::map<std::string, std::uint64_t> quotas;
  std::istringstream lines{std::string(text)};
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string tenant;
    std::string size;
    std::string more;
    if (!(words >> tenant) || tenant.front() == '#') continue;
    const bool is_name = tenant.size() >= quota_name_least && tenant.size() <= 64 &&
                         tenant.find_first_not_of("0123456789abcdef") == std::string::npos;
    words >> size;
    const Result<std::size_t> bytes = parse_size(size);
    if ((!is_name && tenant != "none") || !bytes || words >> more) {
      return fail(Errc::invalid_argument,
                  "{}:{}: a line is the first 8 or more hexadecimal digits of a salt's SHA-256, or "
                  "none, and a size: 0123abcd 16GiB",
                  name, number);
    }
    quotas[tenant] = *bytes;
  }
  return quotas;
}

std::uint64_t TenantQuotas::of(std::string_view digest) const {
  if (digest.empty()) digest = "none";
  std::uint64_t quota = of_each;
  std::size_t longest = 0;
  for (const auto& [name, bytes] : by_name) {
    if (name.size() <= longest || !digest.starts_with(name)) continue;
    longest = name.size();
    quota = bytes;
  }
  return quota;
}

Result<DaemonOptions> DaemonOptions::from(const Config& config) {
  DaemonOptions options;
  options.socket = socket_of(config);
  if (options.socket.size() > socket_path_max) {
    return fail(Errc::invalid_argument, "daemon.socket: the path has {} bytes; at most {}",
                options.socket.size(), socket_path_max);
  }
  options.file = {.path = config.text("tier.nvme.path"),
                  .bytes = config.size_bytes("tier.nvme.bytes")};
  if (options.file.path.empty()) {
    return fail(Errc::invalid_argument, "tier.nvme.path: the daemon needs a file for chunks");
  }
  options.remote = {.url = config.text("tier.remote.url"),
                    .ttl = config.duration("tier.remote.ttl"),
                    .deadline = config.duration("tier.remote.deadline")};
  options.deadline = config.duration("deadline");
  options.memory = config.size_bytes("daemon.memory");
  options.huge_pages = huge_pages_of(config);
  options.lock_memory = config.is("daemon.lock_memory", "on");
  TERRACE_ASSIGN(options.allow_users, users_of(config.text("daemon.allow_users")));
  options.clients = static_cast<std::uint32_t>(config.integer("daemon.clients"));
  options.client = {
      .leases = static_cast<std::uint32_t>(config.integer("daemon.client_leases")),
      .reservations = static_cast<std::uint32_t>(config.integer("daemon.client_reservations")),
      .bytes = config.size_bytes("daemon.client_bytes")};
  options.lease = config.duration("daemon.lease");
  options.pinned = config.size_bytes("daemon.pinned");
  TERRACE_ASSIGN(options.quotas, TenantQuotas::from(config));
  options.threads = static_cast<std::uint32_t>(config.integer("daemon.threads"));
  options.drain = config.duration("daemon.drain");
  return options;
}

}  // namespace terrace::node
