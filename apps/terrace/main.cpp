// The program `terrace`: reads the command line, runs one command, turns errors into one line and
// an exit status (0 done, 1 failed, 2 wrong usage).
#include <fmt/core.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "command.hpp"
#include "terrace/core/nearest_name.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/core/version.hpp"

namespace terrace::apps {
namespace {

constexpr int failed = 1;
constexpr int wrong_usage = 2;

/// Files that are not whole go with the program, which then ends as the signal has it.
void end_by(int signal) {
  remove_pending_files();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void handle_signals() {
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGXCPU}) {
    // By nohup, say, or a shell that runs programs in the background.
    const bool ignored = ::signal(signal, &end_by) == SIG_IGN;
    if (ignored) ::signal(signal, SIG_IGN);
  }
  ::signal(SIGXFSZ, SIG_IGN);  // writing fails instead, and the message names the file
}

int report(const Error& error, bool verbose) {
  fmt::print(stderr, "terrace: {}\n", error.message());
  if (verbose) {
    fmt::print(stderr, "terrace: ({}, native code {}, {}:{})\n", to_string(error.code),
               error.native, error.where.file_name(), error.where.line());
  }
  return error.code == Errc::invalid_argument ? wrong_usage : failed;
}

/// The command that was named before what is wrong.
const CLI::App& innermost(const CLI::App& program) {
  const CLI::App* command = &program;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

/// What there is to name at a place of the command line: options and commands.
std::vector<std::string> known_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  for (const CLI::App* const below :
       command.get_subcommands([](const CLI::App*) { return true; })) {
    words.push_back(below->get_name());
  }
  return words;
}

/// What was meant by the first word that is not known, where some known one is near.
std::string suggestion(const CLI::App& program) {
  const std::vector<std::string> unknown = program.remaining(true);
  if (unknown.empty()) return {};
  const std::vector<std::string> words = known_words(innermost(program));
  const std::vector<std::string_view> names(words.begin(), words.end());
  const std::string_view meant = nearest_name(unknown.front(), names);
  return meant.empty() ? std::string() : fmt::format(", did you mean {}?", meant);
}

int report_usage(const CLI::ParseError& error, const CLI::App& program) {
  std::string line = error.what();
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "terrace: {}{}; see --help\n", line, suggestion(program));
  return wrong_usage;
}

int dispatch(int argc, const char* const* argv) {
  Invocation invocation;
  CLI::App program{"CPU-GPU tiered memory for the KV cache of long-context inference", "terrace"};
  program.set_version_flag("--version",
                           fmt::format("terrace {} ({})", version(), build_info().commit));
  program.require_subcommand(0, 1);  // none is told below, a wrong one by name
  add_run_command(program, invocation);
  add_bench_command(program, invocation);
  add_trace_command(program, invocation);
  add_tune_command(program, invocation);
  add_config_command(program, invocation);
  add_doctor_command(program, invocation);
  refuse_empty_file_names(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for = error.get_exit_code() == 0;  // --help and --version
    return asked_for ? program.exit(error) : report_usage(error, program);
  }
  if (!invocation.action) {
    fmt::print(stderr, "terrace: no command given; see --help\n");
    return wrong_usage;
  }
  const Result<int> status = invocation.action();
  if (!status) return report(status.error(), invocation.verbose);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "terrace: cannot write the results: {}\n", std::strerror(errno));
    return failed;
  }
  return *status;
}

}  // namespace
}  // namespace terrace::apps

int main(int argc, char** argv) {
  terrace::apps::handle_signals();
  try {
    return terrace::apps::dispatch(argc, argv);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "terrace: out of memory: what was asked for takes more than this machine has\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "terrace: {}\n", error.what());
  }
  return terrace::apps::failed;
}
