// `terrace bench`: measures this machine, one figure per row.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "command.hpp"
#include "document.hpp"
#include "harness/question.hpp"
#include "kernels/questions.hpp"
#include "profile_measurement.hpp"
#include "progress.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {
namespace {

struct BenchOptions {
  SharedOptions shared;
  std::string only;          ///< part of the names of the rows wanted
  std::string profile_file;  ///< empty = none is written
  std::string model;         ///< whose layers the profile's fits are for; empty = the bundled one
  bool quick = false;
};

std::vector<bench::Question> chosen_questions(const BenchOptions& options) {
  std::vector<bench::Question> questions = bench::kernel_questions();
  std::erase_if(questions, [&](const bench::Question& question) {
    return question.name.find(options.only) == std::string::npos;
  });
  return questions;
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

Result<int> bench_kernels(const BenchOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  const std::vector<bench::Question> questions = chosen_questions(options);
  if (questions.empty()) {
    return fail(Errc::invalid_argument, "--only {}: no row has that in its name", options.only);
  }
  const Machine machine = read_machine();
  const std::vector<bench::Row> rows = ask_all(questions, options);
  if (!options.profile_file.empty()) TERRACE_TRY(write_profile(options, config, machine, rows));
  if (options.shared.json()) {
    Json document = document_head("bench kernels", config, machine);
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

}  // namespace

void add_bench_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const bench = program.add_subcommand("bench", "measure this machine");
  bench->require_subcommand(1);
  CLI::App* const kernels =
      bench->add_subcommand("kernels", "clustering, selecting, attention, memory; one thread");
  const auto options = std::make_shared<BenchOptions>();
  kernels->add_flag("--quick", options->quick, "small and short: whether it works, not how fast");
  kernels->add_option("--only", options->only, "rows with this in their names")
      ->option_text("TEXT");
  kernels
      ->add_option("--write-profile", options->profile_file,
                   "add the figures, and what clustering may cost, to a machine profile")
      ->option_text("FILE");
  kernels->add_option("--model", options->model, "model whose layers hide the clustering")
      ->option_text("DIR");
  add_shared_options(*kernels, options->shared);
  kernels->callback([options, &invocation] {
    invocation = {[options] { return bench_kernels(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
