// The program `terraced`: its options, its signals and its log. terrace/node/daemon.hpp serves.
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <exception>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "metrics_server.hpp"
#include "output.hpp"
#include "program.hpp"
#include "progress.hpp"
#include "terrace/core/version.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/offload/thread.hpp"
#include "terrace/runtime/config.hpp"
#include "tier_sizes.hpp"

namespace terrace::apps {
namespace {

struct Options {
  std::string config_file;
  std::vector<std::string> assignments;
  std::string socket;
  bool check = false;
  bool quiet = false;
};

/// Writes a line to standard error.
template <typename... T>
void tell(fmt::format_string<T...> format, T&&... arguments) {
  say_text("terraced: ", format, fmt::make_format_args(arguments...));
}

/// The daemon that signals are for.
std::atomic<node::Daemon*> serving = nullptr;

/// Has signals reach a daemon as long as it serves.
class Serving {
 public:
  explicit Serving(node::Daemon& daemon) { serving.store(&daemon); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  ~Serving() { serving.store(nullptr); }
};

void handle_signal(int signal) {
  node::Daemon* const daemon = serving.load();
  // It opens or ends: what has been said to be published is safe, as after any kill.
  if (daemon == nullptr) ::_exit(128 + signal);
  if (signal == SIGHUP) {
    daemon->reload();
  } else {
    daemon->stop();
  }
}

void handle_signals() {
  struct sigaction action{};
  action.sa_handler = &handle_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads ends no daemon
}

/// Clients and their memory take descriptors: as many as the system allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

Result<Config> read_config(const Options& options) {
  const std::vector<EnvironmentVariable> environment = process_environment();
  ConfigInputs inputs{
      .file = options.config_file, .environment = environment, .flags = options.assignments};
  if (!options.socket.empty()) inputs.flags.push_back("daemon.socket=" + options.socket);
  return load_config(inputs);
}

/// The quotas as config and file have them now; nothing, and a line, where they are wrong.
std::optional<node::TenantQuotas> read_quotas(const Options& options) {
  const Result<node::TenantQuotas> quotas = read_config(options).and_then(
      [](const Config& config) { return node::TenantQuotas::from(config); });
  if (quotas) return *quotas;
  tell("quotas stay as they are: {}", quotas.error().message());
  return std::nullopt;
}

Result<node::DaemonOptions> daemon_options(const Options& options, const Config& config) {
  TERRACE_ASSIGN(node::DaemonOptions daemon, node::DaemonOptions::from(config));
  if (::getrandom(&daemon.seed, sizeof daemon.seed, 0) != sizeof daemon.seed) {
    return fail(Errc::io_error, "the system gives no random numbers");
  }
  if (!options.quiet) daemon.log = [](std::string_view line) { tell("{}", line); };
  daemon.read_quotas = [options] { return read_quotas(options); };
  return daemon;
}

/// Starts to serve metrics, if the config asks for them.
Result<std::unique_ptr<MetricsServer>> serve_metrics(const Config& config,
                                                     const std::string& socket, bool quiet) {
  const std::string& address = config.text("daemon.metrics");
  if (address.empty()) return nullptr;
  TERRACE_ASSIGN(auto server, MetricsServer::start({.address = address, .socket = socket}));
  if (!quiet) {
    tell("metrics at http://{}:{}/metrics", address.substr(0, address.rfind(':')), server->port());
  }
  return server;
}

Status serve(const Options& options) {
  TERRACE_ASSIGN(const Config config, read_config(options));
  TERRACE_ASSIGN(const node::DaemonOptions daemon_settings, daemon_options(options, config));
  const auto fault = fault_of_daemon_memory(config);
  if (fault && !options.quiet) tell("{}", *fault);
  if (options.check) {
    if (!options.quiet) print_out("the config is valid\n");
    return flush_results();
  }
  raise_descriptor_limit();
  Progress progress(options.quiet);
  progress.show(daemon_settings.file.path, "opening, taking stock of its chunks", 0);
  Result<std::unique_ptr<node::Daemon>> daemon = node::Daemon::open(daemon_settings);
  progress.clear();
  if (!daemon) return tl::unexpected(daemon.error());
  const Serving reached(**daemon);
  if (!options.quiet) {
    tell("serving {} at {}", daemon_settings.file.path, daemon_settings.socket);
  }
  TERRACE_ASSIGN(const auto metrics, serve_metrics(config, daemon_settings.socket, options.quiet));
  const Status served = (*daemon)->serve();
  if (served && !options.quiet) tell("ended");
  return served;
}

int report(const Error& error) {
  tell("{}", error.message());
  return error.code == Errc::invalid_argument ? wrong_usage : failed;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App program{"Serves the stored chunks of a node to its processes", "terraced"};
  program.set_version_flag("--version",
                           fmt::format("terraced {} ({})", version(), build_info().commit));
  program.add_option("--config", options.config_file, "read config keys from a YAML file")
      ->option_text("FILE");
  program.add_option("--set", options.assignments, "set a config key; may be given many times")
      ->allow_extra_args(false)
      ->option_text("KEY=VALUE");
  program.add_option("--socket", options.socket, "short for --set daemon.socket=PATH")
      ->option_text("PATH");
  program.add_flag("--check", options.check, "check the config and end; exit 2 if it is wrong");
  program.add_flag("-q,--quiet", options.quiet, "neither progress nor log");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      tell("{}; see --help", error.what());
      return wrong_usage;
    }
    std::ostringstream answer;
    program.exit(error, answer, answer);
    print_out("{}", answer.str());
    return flush_results() ? 0 : failed;
  }
  const Status served = serve(options);
  return served ? 0 : report(served.error());
}

}  // namespace
}  // namespace terrace::apps

int main(int argc, char** argv) {
  using namespace terrace;
  apps::occupy_closed_streams();
  apps::handle_signals();
  int status = apps::failed;
  try {
    status = apps::run(argc, argv);
  } catch (const std::bad_alloc&) {
    apps::tell("out of memory: what was asked for takes more than this machine has");
  } catch (const std::exception& error) {
    apps::tell("{}", error.what());
  }
  return status;
}
