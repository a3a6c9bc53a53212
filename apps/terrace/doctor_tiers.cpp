#include "doctor_tiers.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "terrace/core/bytes.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/node/daemon_client.hpp"
#include "terrace/offload/remote_store.hpp"
#include "terrace/offload/store_calls.hpp"
#include "tier_sizes.hpp"

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds patience{1};

/// File systems that statfs(2) names by number, as far as their speed or O_DIRECT is another one.
constexpr auto file_systems = std::to_array<std::pair<std::uint64_t, std::string_view>>({
    {0xEF53, "ext4"},
    {0x58465342, "xfs"},
    {0x9123683E, "btrfs"},
    {0x01021994, "tmpfs"},
    {0x794C7630, "overlayfs"},
    {0x6969, "nfs"},
    {0x2FC12FC1, "zfs"},
});

std::string_view file_system_of(const std::string& folder) {
  struct statfs found{};
  if (::statfs(folder.c_str(), &found) != 0) return "an unknown file system";
  const auto magic = static_cast<std::uint64_t>(found.f_type);
  const auto* const known =
      std::ranges::find(file_systems, magic, [](const auto& one) { return one.first; });
  return known == file_systems.end() ? "another file system" : known->second;
}

/// Whether another process has the file: it holds its lock.
bool is_taken(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool taken = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return taken;
}

/// The file of tier.nvme.path: folder, space, file system, owner.
CheckResult check_file(const Config& config) {
  CheckResult result{"nvme", CheckStatus::skip, "no file named: rows and prefixes go no lower", ""};
  if (config.text("tier.nvme.path").empty()) return result;
  const fs::path file = fs::absolute(config.text("tier.nvme.path"));
  const std::string folder = file.parent_path().string();
  struct statvfs space{};
  if (::statvfs(folder.c_str(), &space) != 0 || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    return {"nvme", CheckStatus::fail, fmt::format("{}: {}", folder, std::strerror(errno)),
            "let tier.nvme.path name a file in a folder that may be written"};
  }
  const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
  std::error_code ignored;
  const bool is_there = fs::exists(file, ignored);
  const std::uint64_t wanted = is_there ? 0 : config.size_bytes("tier.nvme.bytes");
  const std::string_view system = file_system_of(folder);
  result.found = fmt::format("{}: {}, {} free", file.string(), system, format_size(free));
  result.status = CheckStatus::ok;
  if (is_there && ::access(file.c_str(), R_OK | W_OK) != 0) {
    result.status = CheckStatus::fail;
    result.advice = "the file may not be read and written by this user";
  } else if (is_there && is_taken(file)) {
    result.status = CheckStatus::fail;
    result.advice =
        "another process has the file: end it, name another file, or share one by "
        "terraced";
  } else if (wanted > free) {
    result.status = CheckStatus::fail;
    result.advice =
        fmt::format("tier.nvme.bytes is {}: free space, or set it lower", format_size(wanted));
  } else if (system == "tmpfs") {
    result.status = CheckStatus::warn;
    result.advice =
        "tmpfs is host memory: right for prefixes alone; for rows that host memory has no room for "
        "name a file on a disk";
  } else if (const CheckResult direct = check_direct_io_in(folder); !direct.advice.empty()) {
    result.status = direct.status;
    result.advice = direct.advice;
  } else if (const auto fault = fault_of_file_size(config)) {
    result.status = CheckStatus::warn;
    result.advice = *fault;
  }
  return result;
}

/// The servers of tier.remote.url. The URL, which may have a password, is not shown.
CheckResult check_servers(const Config& config) {
  const std::string& url = config.text("tier.remote.url");
  if (url.empty()) return {"remote", CheckStatus::skip, "no servers named", ""};
  const auto asked = [&]() -> Result<std::string> {
    offload::RemoteStoreOptions options;
    TERRACE_ASSIGN(options.server, offload::RemoteServer::parse(url));
    options.deadline = patience;
    std::string first = options.server.addresses.front().text();
    TERRACE_ASSIGN(std::shared_ptr<Store> store, offload::RemoteStore::open(options));
    const auto page = offload::StoreCalls(store, patience).read(PageKey{});
    // No such page is the answer of a server that is well.
    if (!page && page.error().code != Errc::invalid_argument) return tl::unexpected(page.error());
    return first;
  }();
  if (asked) return {"remote", CheckStatus::ok, fmt::format("{} answers", *asked), ""};
  return {"remote", CheckStatus::fail, std::string(asked.error().message()),
          "start the server, or mend tier.remote.url; look-ups miss meanwhile"};
}

/// The daemon of this node, where one is named or runs.
CheckResult check_daemon(const Config& config) {
  const std::string& named = config.text("daemon.socket");
  const std::string socket = named.empty() ? node::default_socket() : named;
  std::error_code ignored;
  if (named.empty() && !fs::exists(socket, ignored)) {
    return {"daemon", CheckStatus::skip, fmt::format("none at {}", socket), ""};
  }
  const auto counters = [&]() -> Result<std::vector<node::DaemonCounter>> {
    node::DaemonClientOptions options{
        .socket = socket, .name = "terrace doctor", .deadline = patience};
    if (const std::string& user = config.text("daemon.user"); !user.empty()) {
      TERRACE_ASSIGN(options.daemon_user, node::user_number(user));
    }
    TERRACE_ASSIGN(const auto client, node::DaemonClient::create(options));
    return client->stats();
  }();
  if (!counters) {
    return {"daemon", CheckStatus::fail, std::string(counters.error().message()),
            "start terraced, or mend daemon.socket (docs/daemon.md)"};
  }
  const auto value_of = [&](std::string_view name) {
    const auto found = std::ranges::find(*counters, name, &node::DaemonCounter::name);
    return found == counters->end() ? 0 : found->value;
  };
  return {"daemon", CheckStatus::ok,
          fmt::format("{}: {} chunks, {} clients", socket, value_of("chunks"), value_of("clients")),
          ""};
}

}  // namespace

CheckResult check_direct_io_in(const std::string& folder) {
  // A file without a name: it vanishes even if the program is killed.
  const int file = ::open(folder.c_str(), O_TMPFILE | O_DIRECT | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) {
    ::close(file);
    return {"direct_io", CheckStatus::ok, fmt::format("O_DIRECT works in {}", folder), ""};
  }
  const int reason = errno;
  const bool lacks_it = reason == EINVAL || reason == EOPNOTSUPP;
  return {"direct_io", CheckStatus::warn, fmt::format("{}: {}", folder, std::strerror(reason)),
          lacks_it ? "keep KV files on a file system with O_DIRECT, such as ext4 or xfs"
                   : "name a folder that may be written"};
}

std::vector<CheckResult> check_tiers(const Config& config) {
  return {check_file(config), check_servers(config), check_daemon(config)};
}

}  // namespace terrace::apps
