#include "terrace/node/daemon.hpp"

#include "server.hpp"

namespace terrace::node {

Daemon::Daemon(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::open(const DaemonOptions& options) {
  TERRACE_ASSIGN(std::unique_ptr<Server> server, Server::open(options));
  return std::unique_ptr<Daemon>(new Daemon(std::move(server)));
}

Status Daemon::serve() { return server_->serve(); }
void Daemon::stop() noexcept { server_->stop(); }
void Daemon::reload() noexcept { server_->reload(); }
void Daemon::look_at_clock() noexcept { server_->wake(); }

}  // namespace terrace::node
