#include "daemon_tier.hpp"

#include "terrace/node/daemon_chunks.hpp"

namespace terrace {

Status check_daemon_tier(const PrefixOptions& prefixes) {
  if (prefixes.daemon.socket.empty() || prefixes.model.empty()) return {};
  if (!prefixes.remote.url.empty()) {
    return fail(Errc::invalid_argument,
                "daemon.socket and tier.remote.url: prefixes are with the daemon or with servers; "
                "leave one of them out");
  }
  if (prefixes.daemon.deadline <= Duration::zero()) {
    return fail(Errc::invalid_argument, "daemon.deadline must be above zero");
  }
  return {};
}

Result<std::shared_ptr<tiers::ChunkKeeper>> open_daemon_tier(const RuntimePlan& plan) {
  const PrefixOptions& prefixes = plan.options.prefixes;
  const DaemonPrefixOptions& daemon = prefixes.daemon;
  if (daemon.socket.empty() || prefixes.model.empty() || plan.retains()) return nullptr;
  TERRACE_TRY(check_daemon_tier(prefixes));
  node::DaemonChunksOptions options{
      .client = {.socket = daemon.socket, .name = "runtime", .deadline = daemon.deadline},
      .writing_deadline = plan.deadline()};
  if (!daemon.user.empty()) {
    const Result<std::uint32_t> user = node::user_number(daemon.user);
    if (!user) return tl::unexpected(user.error().while_doing("daemon.user"));
    options.client.daemon_user = *user;
  }
  auto opened = node::DaemonChunks::create(options);
  if (!opened) return tl::unexpected(opened.error().while_doing("daemon.socket"));
  return *std::move(opened);
}

}  // namespace terrace
