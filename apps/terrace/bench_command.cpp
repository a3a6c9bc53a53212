// `terrace bench`: measures this machine, one figure per row.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "bench_pcie.hpp"
#include "cache/questions.hpp"
#include "command.hpp"
#include "document.hpp"
#include "harness/question.hpp"
#include "kernels/questions.hpp"
#include "profile_measurement.hpp"
#include "progress.hpp"
#include "quality/benches.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {
namespace {

struct BenchOptions {
  SharedOptions shared;
  std::string only;          ///< part of the names of the rows wanted
  std::string profile_file;  ///< empty = none is written
  std::string trace;         ///< of cache; empty = made up
  std::string model;         ///< whose layers the profile's fits are for; empty = the bundled one
  bool quick = false;
};

Status keep_wanted(const BenchOptions& options, std::vector<bench::Question>& questions) {
  std::erase_if(questions, [&](const bench::Question& question) {
    return question.name.find(options.only) == std::string::npos;
  });
  if (!questions.empty()) return {};
  return fail(Errc::invalid_argument, "--only {}: no row has that in its name", options.only);
}

std::vector<bench::Row> ask_all(std::span<const bench::Question> questions,
                                const BenchOptions& options) {
  Progress progress(options.shared.quiet);
  std::vector<bench::Row> rows;
  for (const bench::Question& question : questions) {
    progress.show("bench", question.name,
                  static_cast<double>(rows.size()) / static_cast<double>(questions.size()));
    rows.push_back(bench::ask(question, {.quick = options.quick}));
  }
  return rows;
}

Status write_profile(const BenchOptions& options, const Config& config, const Machine& machine,
                     std::span<const bench::Row> rows) {
  MachineProfile profile;
  if (auto earlier = MachineProfile::read(options.profile_file)) {
    profile = std::move(*earlier);
  } else if (earlier.error().code != Errc::io_error) {
    return tl::unexpected(earlier.error());  // some other file: it must not be lost
  }
  profile.date = fmt::format("{:%Y-%m-%d}", std::chrono::system_clock::now());
  profile.cpu = machine.cpu;
  profile.isa = machine.isa;
  for (const bench::Row& row : rows) {
    if (row.value && row.unit == "B/s") profile.host[row.name] = *row.value;
  }
  TERRACE_TRY(measure_planning(options.model, config, profile));
  return replace_file(options.profile_file, profile.to_yaml());
}

/// Prints the rows; the exit status says whether each has a figure.
int print_rows(const char* command, const BenchOptions& options, const Config& config,
               const Machine& machine, std::span<const bench::Row> rows) {
  if (options.shared.json()) {
    Json document = document_head(command, config, machine);
    document["rows"] = Json::array();
    for (const bench::Row& row : rows) document["rows"].push_back(bench::to_json(row));
    print_document(document);
  } else {
    fmt::print("machine  {}, {}, {} cores; one thread\n\n{}", machine.cpu, machine.isa,
               machine.cores, bench::table(rows));
  }
  const bool answered =
      std::ranges::all_of(rows, [](const bench::Row& row) { return row.value.has_value(); });
  return answered ? 0 : 1;
}

Result<int> bench_kernels(const BenchOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  std::vector<bench::Question> questions = bench::kernel_questions();
  TERRACE_TRY(keep_wanted(options, questions));
  const Machine machine = read_machine();
  const std::vector<bench::Row> rows = ask_all(questions, options);
  if (!options.profile_file.empty()) TERRACE_TRY(write_profile(options, config, machine, rows));
  return print_rows("bench kernels", options, config, machine, rows);
}

Result<int> bench_cache(const BenchOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  std::vector<bench::Question> questions = bench::touch_questions();
  TERRACE_ASSIGN(auto replays, bench::replay_questions(options.trace, options.quick));
  questions.insert(questions.end(), replays.begin(), replays.end());
  TERRACE_TRY(keep_wanted(options, questions));
  return print_rows("bench cache", options, config, read_machine(), ask_all(questions, options));
}

CLI::App* add_action(CLI::App& bench, const char* name, const char* meaning,
                     const std::shared_ptr<BenchOptions>& options,
                     Result<int> (*action)(const BenchOptions&), Invocation& invocation) {
  CLI::App* const command = bench.add_subcommand(name, meaning);
  command->add_flag("--quick", options->quick, "small and short: whether it works, not how fast");
  command->add_option("--only", options->only, "rows with this in their names")
      ->option_text("TEXT");
  add_shared_options(*command, options->shared);
  command->callback([options, action, &invocation] {
    invocation = {[options, action] { return action(*options); }, options->shared.verbose};
  });
  return command;
}

}  // namespace

void add_bench_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const bench = program.add_subcommand("bench", "measure this machine");
  bench->require_subcommand(1);
  add_bench_pcie(*bench, invocation);
  add_quality_bench(*bench, invocation);
  add_drift_bench(*bench, invocation);
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* const kernels =
      add_action(*bench, "kernels", "clustering, selecting, attention, memory; one thread", options,
                 &bench_kernels, invocation);
  kernels
      ->add_option("--write-profile", options->profile_file,
                   "add the figures, and what clustering may cost, to a machine profile")
      ->option_text("FILE");
  kernels->add_option("--model", options->model, "model whose layers hide the clustering")
      ->option_text("DIR");
  const auto for_cache = std::make_shared<BenchOptions>();
  add_action(*bench, "cache", "replacement policies: touches, and steps of a trace", for_cache,
             &bench_cache, invocation)
      ->add_option("--trace", for_cache->trace, "what terrace run --trace recorded, or imported")
      ->option_text("FILE");
}

}  // namespace terrace::apps
