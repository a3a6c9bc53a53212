// `terrace doctor`: checks the machine and the config in force.

#include <algorithm>
#include <memory>

#include "backend_choice.hpp"
#include "command.hpp"
#include "doctor_checks.hpp"
#include "document.hpp"
#include "output.hpp"

namespace terrace::apps {
namespace {

void print_rows(const std::vector<CheckResult>& results) {
  for (const CheckResult& result : results) {
    print_out("{:<5} {:<14} {}\n", to_string(result.status), result.check, result.found);
    if (!result.advice.empty()) print_out("{:20} -> {}\n", "", result.advice);
  }
}

Json rows_of(const std::vector<CheckResult>& results) {
  Json rows = Json::array();
  for (const CheckResult& result : results) {
    rows.push_back({{"check", result.check},
                    {"status", to_string(result.status)},
                    {"found", result.found},
                    {"advice", result.advice}});
  }
  return rows;
}

Result<int> diagnose(const SharedOptions& options) {
  TERRACE_ASSIGN(const Settings settings, resolve_settings(options));
  const Config& config = settings.config;
  const std::vector<CheckResult> results = run_checks(settings);
  if (options.json()) {
    const auto backend = find_backend(config);
    Json document =
        document_head("doctor", config, read_machine(backend ? backend->device : std::string()));
    document["rows"] = rows_of(results);
    print_document(document);
  } else {
    print_rows(results);
  }
  const bool failed = std::ranges::any_of(
      results, [](const CheckResult& result) { return result.status == CheckStatus::fail; });
  return failed ? 1 : 0;
}

}  // namespace

void add_doctor_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command =
      program.add_subcommand("doctor", "check what users stumble over; exit 1 if a check fails");
  const auto options = std::make_shared<SharedOptions>();
  add_key_flags(*command, {&profile_flag, 1}, *options);
  add_shared_options(*command, *options);
  command->callback([options, &invocation] {
    invocation = {[options] { return diagnose(*options); }, options->verbose};
  });
}

}  // namespace terrace::apps
