#include "remote_tier.hpp"

#include <algorithm>

#include "terrace/offload/remote_store.hpp"

namespace terrace {
namespace {

Result<std::shared_ptr<tiers::RemoteChunks>> open_servers(const RemotePrefixOptions& remote) {
  offload::RemoteStoreOptions options;
  TERRACE_ASSIGN(options.server, offload::RemoteServer::parse(remote.url));
  options.ttl = remote.ttl;
  options.deadline = remote.deadline;
  options.connect_timeout = std::min(options.connect_timeout, remote.deadline);
  TERRACE_ASSIGN(std::shared_ptr<Store> store, offload::RemoteStore::open(options));
  return tiers::RemoteChunks::create({.store = std::move(store), .deadline = remote.deadline});
}

}  // namespace

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
  auto opened = open_servers(prefixes.remote);
  if (!opened) return tl::unexpected(opened.error().while_doing("tier.remote"));
  return opened;
}

}  // namespace terrace
