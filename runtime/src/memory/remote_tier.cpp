#include "remote_tier.hpp"

#include "terrace/offload/remote_store.hpp"

namespace terrace {

Status check_remote_tier(const RuntimeOptions& options) {
  const RemotePrefixOptions& remote = options.prefixes.remote;
  if (remote.url.empty() || options.prefixes.model.empty()) return {};
  if (options.below_host.store == nullptr && options.below_host.file.empty()) {
    return fail(Errc::invalid_argument,
                "tier.remote.url: prefixes come up into the file of tier.nvme.path; name one");
  }
  const auto server = offload::RemoteServer::parse(remote.url);
  if (!server) return tl::unexpected(server.error().while_doing("tier.remote"));
  if (remote.deadline > Duration::zero()) return {};
  return fail(Errc::invalid_argument, "tier.remote.deadline must be above zero");
}

Result<std::shared_ptr<tiers::RemoteChunks>> open_remote_tier(const RuntimeOptions& options) {
  const PrefixOptions& prefixes = options.prefixes;
  if (prefixes.remote.url.empty() || prefixes.model.empty()) return nullptr;
  TERRACE_TRY(check_remote_tier(options));
  auto opened = tiers::RemoteChunks::on({.url = prefixes.remote.url,
                                         .ttl = prefixes.remote.ttl,
                                         .deadline = prefixes.remote.deadline});
  if (!opened) return tl::unexpected(opened.error().while_doing("tier.remote"));
  return opened;
}

}  // namespace terrace
