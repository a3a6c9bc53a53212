#include "program.hpp"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <sstream>

#include "command.hpp"
#include "output.hpp"
#include "terrace/core/nearest_name.hpp"
#include "terrace/core/version.hpp"

namespace terrace::apps {
namespace {

int report(const Error& error, bool verbose) {
  say("{}", error.message());
  if (verbose) {
    say("({}, native code {}, {}:{})", to_string(error.code), error.native, error.where.file_name(),
        error.where.line());
  }
  return error.code == Errc::invalid_argument ? wrong_usage : failed;
}

/// The command that was named before what is wrong.
const CLI::App& innermost(const CLI::App& program) {
  const CLI::App* command = &program;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

std::vector<std::string> commands_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* const below :
       command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(below->get_name());
  }
  return names;
}

/// Returns the known word nearest to an unknown one, or, if no word is near, the commands that are
/// possible in its place.
std::string suggestion(const CLI::App& program, std::string_view unknown) {
  const CLI::App& command = innermost(program);
  const std::vector<std::string> commands = commands_below(command);
  std::vector<std::string> words = commands;
  for (const CLI::Option* const option : command.get_options()) {
    if (option->get_group().empty()) continue;  // of those that are only refused
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  const std::vector<std::string_view> names(words.begin(), words.end());
  const std::string_view meant = nearest_name(unknown, names);
  if (!meant.empty()) return fmt::format(", did you mean {}?", meant);
  if (commands.empty() || unknown.starts_with('-')) return {};
  return fmt::format(" (known are {})", fmt::join(commands, ", "));
}

int report_usage(const CLI::ParseError& error, const CLI::App& program) {
  const std::vector<std::string> unknown = program.remaining(true);
  const bool is_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  std::string line = is_unknown ? unknown.front() + " was not expected" : error.what();
  std::ranges::replace(line, '\n', ' ');
  say("{}{}; see --help", line, unknown.empty() ? "" : suggestion(program, unknown.front()));
  return wrong_usage;
}

/// Prints what --help and --version ask for.
int print_answer(const CLI::ParseError& error, const CLI::App& program) {
  std::ostringstream answer;
  program.exit(error, answer, answer);
  print_out("{}", answer.str());
  return 0;
}

/// Ends with the status of a command, unless some of its results are lost.
int finish(int status) {
  const Status written = flush_results();
  return written ? status : report(written.error(), false);
}

int dispatch(int argc, const char* const* argv) {
  Invocation invocation;
  CLI::App program{"CPU-GPU tiered memory for the KV cache of long-context inference", "terrace"};
  program.set_version_flag("--version",
                           fmt::format("terrace {} ({})", version(), build_info().commit));
  program.require_subcommand(0, 1);  // a missing one is reported below, a wrong one by name
  add_run_command(program, invocation);
  add_bench_command(program, invocation);
  add_trace_command(program, invocation);
  add_size_command(program, invocation);
  add_tune_command(program, invocation);
  add_calibrate_command(program, invocation);
  add_config_command(program, invocation);
  add_doctor_command(program, invocation);
  add_stats_command(program, invocation);
  refuse_empty_file_names(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for = error.get_exit_code() == 0;  // --help and --version
    return asked_for ? finish(print_answer(error, program)) : report_usage(error, program);
  }
  if (!invocation.action) {
    say("no command given; see --help");
    return wrong_usage;
  }
  const Result<int> status = invocation.action();
  if (!status) return report(status.error(), invocation.verbose);
  return finish(*status);
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  try {
    return dispatch(argc, argv);
  } catch (const std::bad_alloc&) {
    say("out of memory: what was asked for takes more than this machine has");
  } catch (const std::exception& error) {
    say("{}", error.what());
  }
  return failed;
}

}  // namespace terrace::apps
