// `terrace stats`: the counters of a daemon.
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "command.hpp"
#include "document.hpp"
#include "output.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::apps {
namespace {

constexpr std::chrono::seconds between_looks{1};

struct StatsOptions {
  SharedOptions shared;
  bool watch = false;
};

using CounterValues = std::map<std::string, std::uint64_t>;

CounterValues by_name(const std::vector<node::DaemonCounter>& counters) {
  CounterValues values;
  for (const node::DaemonCounter& counter : counters) values[counter.name] = counter.value;
  return values;
}

Json rows_of(const CounterValues& values) {
  Json rows = Json::array();
  for (const auto& [name, value] : values) rows.push_back({{"counter", name}, {"value", value}});
  return rows;
}

/// Prints the counters, and with those of the look before what has changed since.
void print_counters(const CounterValues& values, const CounterValues* before) {
  for (const auto& [name, value] : values) {
    const auto old = before == nullptr ? CounterValues::const_iterator{} : before->find(name);
    const bool has_changed = before != nullptr && old != before->end() && old->second != value;
    print_out("{:<28} {:>20}", name, value);
    if (has_changed) {
      print_out(" {:+}", static_cast<std::int64_t>(value - old->second));
    }
    print_out("\n");
  }
}

Result<CounterValues> look(node::DaemonClient& client) { return client.stats().map(by_name); }

/// Prints counters each second, until the daemon is away or nobody reads.
Result<int> watch(node::DaemonClient& client, CounterValues before) {
  for (;;) {
    TERRACE_TRY(flush_results());
    std::this_thread::sleep_for(between_looks);
    TERRACE_ASSIGN(CounterValues values, look(client));
    print_out("\n");
    print_counters(values, &before);
    before = std::move(values);
  }
}

Result<int> show_stats(const StatsOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  const std::string& named = config.text("daemon.socket");
  TERRACE_ASSIGN(const auto client, node::DaemonClient::create(
                                        {.socket = named.empty() ? node::default_socket() : named,
                                         .name = "terrace stats"}));
  TERRACE_ASSIGN(const CounterValues values, look(*client));
  if (options.shared.json()) {
    Json document = document_head("stats", config, read_machine());
    document["rows"] = rows_of(values);
    print_document(document);
    return 0;
  }
  print_counters(values, nullptr);
  return options.watch ? watch(*client, values) : 0;
}

}  // namespace

void add_stats_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command = program.add_subcommand("stats", "print the counters of terraced");
  const auto options = std::make_shared<StatsOptions>();
  static constexpr KeyFlag daemon{"--daemon", "daemon.socket", "socket of terraced"};
  add_key_flags(*command, {&daemon, 1}, options->shared);
  add_shared_options(*command, options->shared);
  command->add_flag("--watch", options->watch, "print them again each second, with what changed");
  command->callback([options, &invocation] {
    invocation = {[options] { return show_stats(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
