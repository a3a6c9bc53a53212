#include "server.hpp"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace terrace::node {
namespace {

constexpr std::uint64_t listener_number = 0;
constexpr std::uint64_t wake_number = 1;
constexpr std::uint64_t workers_number = 2;
constexpr std::uint64_t first_number = 16;
constexpr int round_ms = 100;  ///< after which what has expired is looked for
constexpr std::size_t events_at_once = 64;
constexpr std::size_t clients_at_once = 16;

PageSize page_size_of(HugePages pages) noexcept {
  switch (pages) {
    case HugePages::reserved:
      return PageSize::huge;
    case HugePages::advised:
      return PageSize::huge_if_free;
    default:
      return PageSize::usual;
  }
}

}  // namespace

Daemon::Server::Server(const DaemonOptions& options)
    : options_(options), clock_(options.clock != nullptr ? *options.clock : steady_) {}

Result<std::unique_ptr<Daemon::Server>> Daemon::Server::open(const DaemonOptions& options) {
  std::unique_ptr<Server> server(new Server(options));
  TERRACE_TRY(server->listener_.open(options.socket, !options.allow_users.empty()));
  TERRACE_TRY(server->prepare());
  return server;
}

Status Daemon::Server::prepare() {
  tiers::ChunkLibraryOptions chunks{.deadline = options_.deadline, .seed = options_.seed};
  if (!options_.remote.url.empty()) {
    const auto remote = tiers::RemoteChunks::on(options_.remote);
    if (!remote) return tl::unexpected(remote.error().while_doing("tier.remote"));
    chunks.remote = *remote;
  }
  TERRACE_ASSIGN(library_, tiers::ChunkLibrary::open_file(options_.file, chunks));
  chunks_.emplace(library_, clock_, options_.quotas);
  pool_.emplace(PartPoolOptions{.bytes = options_.memory,
                                .pages = page_size_of(options_.huge_pages),
                                .lock = options_.lock_memory});
  TERRACE_TRY(pool_->try_out());
  node_.emplace(options_, clock_, *chunks_, *pool_, PinnedChunks(options_.pinned));
  if (const std::uint64_t lost = chunks_->health().lost; lost > 0) {
    node_->log(
        fmt::format("{}: {} pages are lost, as its directory was damaged; chunks that had "
                    "them are not found",
                    options_.file.path, lost));
  }
  node_->instance =
      options_.seed ^ static_cast<std::uint64_t>(steady_.now().time_since_epoch().count());
  node_->next_number = first_number;
  TERRACE_TRY(node_->workers.open(options_.threads));
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.is_open() || !wake_.is_open()) {
    return fail(Errc::out_of_memory, "no descriptor is left: raise the limit of open files");
  }
  TERRACE_TRY(watch(listener_.descriptor(), listener_number, EPOLLIN));
  TERRACE_TRY(watch(wake_.get(), wake_number, EPOLLIN));
  return watch(node_->workers.descriptor(), workers_number, EPOLLIN);
}

Status Daemon::Server::watch(int descriptor, std::uint64_t number, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  const bool is_known = number >= first_number && watched_.contains(number);
  if (::epoll_ctl(epoll_.get(), is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, &event) !=
      0) {
    return fail(Errc::io_error, "watching a socket: {}", std::strerror(errno));
  }
  if (number >= first_number) watched_[number] = events;
  return {};
}

Status Daemon::Server::serve() {
  while (!is_drained()) TERRACE_TRY(run_round());
  while (!node_->sessions.empty()) {
    node_->sessions.begin()->second->close("the daemon ends");
    close(node_->sessions.begin()->first);
  }
  return {};
}

bool Daemon::Server::is_drained() {
  if (!stop_.load()) return false;
  if (!drain_) {
    drain_.emplace(options_.drain);
    listener_.close();
    node_->is_draining = true;
    node_->log(fmt::format("draining: {} clients, {} jobs under way", node_->sessions.size(),
                           node_->workers.under_way()));
  }
  const bool is_idle = node_->workers.under_way() == 0 &&
                       std::ranges::none_of(node_->sessions, [](const auto& each) {
                         return each.second->has_unsent();
                       });
  return is_idle || drain_->left() == Duration::zero();
}

Status Daemon::Server::run_round() {
  std::array<epoll_event, events_at_once> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 has_more_ ? 0 : round_ms);
  if (count < 0 && errno != EINTR) {
    return fail(Errc::io_error, "waiting for sockets: {}", std::strerror(errno));
  }
  for (int i = 0; i < count; ++i) {
    const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
    const std::uint32_t what = events[static_cast<std::size_t>(i)].events;
    if (number == listener_number) {
      take_client();
    } else if (number == wake_number) {
      eventfd_t ignored = 0;
      static_cast<void>(::eventfd_read(wake_.get(), &ignored));
    } else if (number == workers_number) {
      node_->workers.run_endings();
    } else if (Session* const session = node_->session(number)) {
      if ((what & EPOLLOUT) != 0) session->send_more();
      if ((what & EPOLLIN) != 0) session->receive();
      if ((what & (EPOLLERR | EPOLLHUP)) != 0) session->close("the client is gone");
    }
  }
  if (reload_.exchange(false)) take_quotas();
  settle_sessions();
  return {};
}

void Daemon::Server::take_client() {
  for (std::size_t i = 0; i < clients_at_once; ++i) {
    Result<Listener::Accepted> accepted = listener_.accept();
    if (accepted && accepted->was_refused) {
      refuse("no descriptor is left: raise the limit of open files");
    } else if (accepted && accepted->socket.is_open()) {
      greet(std::move(accepted->socket));
    } else {
      return;
    }
  }
}

void Daemon::Server::greet(Descriptor socket) {
  const Result<Peer> peer = peer_of(socket);
  if (!peer) return refuse(std::string(peer.error().message()));
  const auto& allowed = options_.allow_users;
  if (peer->user != ::geteuid() && std::ranges::find(allowed, peer->user) == allowed.end()) {
    return refuse(fmt::format("pid={} uid={}: daemon.allow_users has not its user", peer->process,
                              peer->user));
  }
  if (node_->sessions.size() >= options_.clients) {
    return refuse(fmt::format("pid={} uid={}: daemon.clients is {}", peer->process, peer->user,
                              options_.clients));
  }
  const std::uint64_t number = node_->next_number++;
  ++node_->counters.connections;
  const int descriptor = socket.get();
  auto session = std::make_shared<Session>(*node_, number, std::move(socket), *peer);
  if (watch(descriptor, number, EPOLLIN)) node_->sessions.emplace(number, std::move(session));
}

void Daemon::Server::refuse(const std::string& why) {
  ++node_->counters.refused;
  node_->log("client refused: " + why);
}

void Daemon::Server::settle_sessions() {
  has_more_ = false;
  const TimePoint now = clock_.now();
  for (auto each = node_->sessions.begin(); each != node_->sessions.end();) {
    const auto session = each++;
    session->second->expire(now);
    settle(session->first, *session->second);
  }
}

void Daemon::Server::settle(std::uint64_t number, Session& session) {
  if (session.go_on()) has_more_ = true;
  if (!session.closing().empty()) return close(number);
  const std::uint32_t events = (session.may_receive() ? std::uint32_t{EPOLLIN} : 0U) |
                               (session.has_unsent() ? std::uint32_t{EPOLLOUT} : 0U);
  if (events == watched_[number]) return;
  if (!watch(session.descriptor(), number, events)) close(number);
}

void Daemon::Server::close(std::uint64_t number) {
  const auto session = node_->sessions.find(number);
  node_->log(fmt::format("{}: closed: {}; {} leases, {} reservations", session->second->name(),
                         session->second->closing(), session->second->leases(),
                         session->second->reservations()));
  watched_.erase(number);
  node_->sessions.erase(session);
}

void Daemon::Server::take_quotas() {
  if (!options_.read_quotas) return;
  const std::optional<TenantQuotas> quotas = options_.read_quotas();
  if (!quotas) return;
  chunks_->set_quotas(*quotas);
  node_->workers.start(0, [chunks = &*chunks_]() -> Ending {
    chunks->enforce_quotas();
    return {};
  });
  node_->log("quotas were read again");
}

void Daemon::Server::wake() noexcept { static_cast<void>(::eventfd_write(wake_.get(), 1)); }

void Daemon::Server::stop() noexcept {
  stop_.store(true);
  wake();
}

void Daemon::Server::reload() noexcept {
  reload_.store(true);
  wake();
}

}  // namespace terrace::node
