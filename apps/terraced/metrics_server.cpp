#include "metrics_server.hpp"

#include <httplib.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>

#include "metrics.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::apps {
namespace {

constexpr std::chrono::seconds patience{2};  // with who asks slowly
constexpr std::size_t request_bytes_max = 4096;
constexpr std::size_t answering_threads = 2;

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

/// Reads HOST:PORT; the host of IPv6 stands in brackets.
Result<Address> read_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  Address address;
  if (colon != std::string_view::npos && colon > 0) {
    std::string_view host = text.substr(0, colon);
    if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const std::string_view port = text.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), address.port);
    address.host = host;
    if (read.ec == std::errc() && read.ptr == port.data() + port.size() && !host.empty()) {
      return address;
    }
  }
  return fail(Errc::invalid_argument, "daemon.metrics: \"{}\" is not HOST:PORT", text);
}

void answer(httplib::Response& response, const Result<std::string>& text) {
  if (!text) response.status = 503;
  response.set_content(text ? *text : std::string(text.error().message()) + "\n", "text/plain");
}

}  // namespace

class MetricsServer::Listener {
 public:
  explicit Listener(std::unique_ptr<node::DaemonClient> client) : client_(std::move(client)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(answering_threads); };
    server_.set_read_timeout(patience);
    server_.set_write_timeout(patience);
    server_.set_keep_alive_timeout(1);
    // By its default two daemons could share a port, and answer in turn.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    server_.set_payload_max_length(request_bytes_max);
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, client_->stats().map(&metrics_text));
    });
    server_.Get("/health", [this](const httplib::Request&, httplib::Response& response) {
      answer(response, client_->stats().map([](const auto&) { return std::string("ok\n"); }));
    });
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  ~Listener() {
    // The library forgets a stop() that comes before its loop has begun.
    while (listening_.joinable() && !ended_.load()) {
      server_.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    if (listening_.joinable()) listening_.join();
  }

  Status listen(const Address& address) {
    const int bound = address.port == 0 ? server_.bind_to_any_port(address.host.c_str())
                                        : (server_.bind_to_port(address.host.c_str(), address.port)
                                               ? static_cast<int>(address.port)
                                               : -1);
    if (bound <= 0) {
      return fail(Errc::io_error, "daemon.metrics: cannot listen at {}:{}", address.host,
                  address.port);
    }
    port_ = static_cast<std::uint16_t>(bound);
    listening_ = std::thread([this] {
      // A place among the clients, which a daemon that is full would not give later.
      static_cast<void>(client_->connect());
      server_.listen_after_bind();
      ended_.store(true);
    });
    return {};
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  std::unique_ptr<node::DaemonClient> client_;
  httplib::Server server_;
  std::uint16_t port_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread listening_;
};

MetricsServer::MetricsServer(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}
MetricsServer::~MetricsServer() = default;

std::uint16_t MetricsServer::port() const noexcept { return listener_->port(); }

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const MetricsServerOptions& options) {
  TERRACE_ASSIGN(const Address address, read_address(options.address));
  TERRACE_ASSIGN(auto client, node::DaemonClient::create(
                                  {.socket = options.socket, .name = "terraced metrics"}));
  auto listener = std::make_unique<Listener>(std::move(client));
  TERRACE_TRY(listener->listen(address));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(listener)));
}

}  // namespace terrace::apps
