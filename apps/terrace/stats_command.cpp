// `terrace stats`: the counters of a daemon, or of a process that publishes its own.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "command.hpp"
#include "document.hpp"
#include "output.hpp"
#include "terrace/core/read_file.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::apps {
namespace {

constexpr std::chrono::seconds between_looks{1};
constexpr std::size_t metrics_bytes_max = 1 << 20;

struct StatsOptions {
  SharedOptions shared;
  bool watch = false;
};

using CounterValues = std::map<std::string, double>;

/// Reads counters as they are now.
using Look = std::function<Result<CounterValues>()>;

Result<Look> look_at_daemon(const std::string& socket) {
  TERRACE_ASSIGN(auto created, node::DaemonClient::create(
                                   {.socket = socket.empty() ? node::default_socket() : socket,
                                    .name = "terrace stats"}));
  return [client = std::shared_ptr(std::move(created))]() -> Result<CounterValues> {
    TERRACE_ASSIGN(const std::vector<node::DaemonCounter> counters, client->stats());
    CounterValues values;
    for (const auto& counter : counters) values[counter.name] = static_cast<double>(counter.value);
    return values;
  };
}

/// Parses metrics in the text format of Prometheus, as a runtime writes them.
/// Errors: corrupt naming the line.
Result<CounterValues> parse_metrics(const std::string& path, std::string_view text) {
  CounterValues values;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t blank = line.rfind(' ');
    double value = 0;
    const char* const end = line.data() + line.size();
    const bool is_counter = blank != std::string_view::npos && blank > 0 &&
                            std::from_chars(line.data() + blank + 1, end, value).ptr == end &&
                            blank + 1 < line.size();
    if (!is_counter) {
      return fail(Errc::corrupt, "{}:{}: no counter; name the file of stats.file", path, number);
    }
    values[std::string(line.substr(0, blank))] = value;
  }
  return values;
}

Look look_at_file(const std::string& path) {
  return [path]() -> Result<CounterValues> {
    const Result<std::string> text = read_file(path, metrics_bytes_max);
    if (!text) {
      return tl::unexpected(
          text.error().while_doing("a runtime with this stats.file has it while it runs"));
    }
    return parse_metrics(path, *text);
  };
}

bool is_whole(double value) { return value == std::floor(value) && std::abs(value) < 9e15; }

std::string number_text(double value) {
  return is_whole(value) ? fmt::format("{}", static_cast<std::int64_t>(value))
                         : fmt::format("{:.3f}", value);
}

Json rows_of(const CounterValues& values) {
  Json rows = Json::array();
  for (const auto& [name, value] : values) {
    rows.push_back(
        {{"counter", name},
         {"value", is_whole(value) ? Json(static_cast<std::int64_t>(value)) : Json(value)}});
  }
  return rows;
}

/// Prints the counters, and with those of the look before what has changed since.
void print_counters(const CounterValues& values, const CounterValues* before) {
  std::size_t width = 28;
  for (const auto& [name, value] : values) width = std::max(width, name.size());
  for (const auto& [name, value] : values) {
    print_out("{:<{}} {:>20}", name, width, number_text(value));
    const auto old = before == nullptr ? CounterValues::const_iterator{} : before->find(name);
    const bool has_changed = before != nullptr && old != before->end() && old->second != value;
    if (has_changed) {
      const double change = value - old->second;
      print_out(" {}{}", change > 0 ? "+" : "", number_text(change));
    }
    print_out("\n");
  }
}

/// Prints counters each second, until they cannot be had any more or nobody reads.
Result<int> watch(const Look& look, CounterValues before) {
  for (;;) {
    TERRACE_TRY(flush_results());
    std::this_thread::sleep_for(between_looks);
    TERRACE_ASSIGN(CounterValues values, look());
    print_out("\n");
    print_counters(values, &before);
    before = std::move(values);
  }
}

/// Looks at the file that the config names, unless the command line names a daemon.
Result<Look> choose_look(const Config& config) {
  const auto is_flag = [&](const char* key) {
    return config.source(key).origin == ConfigOrigin::flag;
  };
  const std::string& file = config.text("stats.file");
  if (!file.empty() && (is_flag("stats.file") || !is_flag("daemon.socket"))) {
    return look_at_file(file);
  }
  return look_at_daemon(config.text("daemon.socket"));
}

Result<int> show_stats(const StatsOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_ASSIGN(const Look look, choose_look(config));
  TERRACE_ASSIGN(const CounterValues values, look());
  if (options.shared.json()) {
    Json document = document_head("stats", config, read_machine());
    document["rows"] = rows_of(values);
    print_document(document);
    return 0;
  }
  print_counters(values, nullptr);
  return options.watch ? watch(look, values) : 0;
}

}  // namespace

void add_stats_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command = program.add_subcommand(
      "stats", "print the counters of terraced, or of a process that publishes its own");
  const auto options = std::make_shared<StatsOptions>();
  static constexpr std::array flags{
      KeyFlag{"--daemon", "daemon.socket", "socket of terraced"},
      KeyFlag{"--file", "stats.file", "file in which a process publishes its counters"}};
  add_key_flags(*command, flags, options->shared);
  add_shared_options(*command, options->shared);
  command->add_flag("--watch", options->watch, "print them again each second, with what changed");
  command->callback([options, &invocation] {
    invocation = {[options] { return show_stats(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
