#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <memory>
#include <set>

#include "bench_rows.hpp"
#include "output.hpp"
#include "page_origin.hpp"
#include "profile_report.hpp"
#include "progress.hpp"
#include "quality/benches.hpp"
#include "quality/drift.hpp"
#include "quality/report.hpp"
#include "run/needle_options.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::apps {
namespace {

constexpr std::array key_flags{
    KeyFlag{"--policy", "retrieval.policy", "policies to compare, separated by commas"},
    KeyFlag{"--backend", "backend", "auto, host or cuda"},
    KeyFlag{"--kv-dtype", "kv.dtype", "element type of stored keys and values: f16, bf16 or f32"},
    profile_flag,
};

constexpr std::size_t bundled_needles = 20;

/// All that retrieve but full attention, which they are compared with anyway, and of those that
/// drop what covers the ways to choose: by all attention, the last queries, predicted lifespans,
/// and by likeness, which merges.
std::string comparable_policies(bool quick, const std::string& model) {
  std::string names;
  for (const auto& entry : policies::retrieval_policies()) {
    if (entry.name != "full") names += std::string(entry.name) + ",";
  }
  if (quick) return names + "snapkv,chelsea";
  std::error_code none;
  const bool has_gates =
      model.empty() ||  // the bundled model
      std::filesystem::exists(std::filesystem::path(model) / "gates.safetensors", none);
  return names + "h2o,snapkv,chelsea" + (has_gates ? ",smartkv" : "");
}

/// Adds the flags above; --help names the policies that are compared by default.
void add_policy_flags(CLI::App& command, RunOptions& run, const std::string& default_policies) {
  add_key_flags(command, key_flags, run.shared);
  CLI::Option* const policy = command.get_option("--policy");
  policy->description(fmt::format("{} [{}]", policy->get_description(), default_policies));
}

/// Sets the sizes that the user did not give: large enough that differences are not all noise, or,
/// for a quick run, just large enough to show that the command works.
void fill_in(const CLI::App& command, QualityOptions& options) {
  const bool quick = options.quick;
  const auto given = [&command](const char* option) { return command.count(option) > 0; };
  if (!given("--context")) options.run.context = quick ? 512 : 4096;
  if (!given("--decode")) options.run.decode = quick ? 8 : 512;
  if (!given("--budget") && quick) options.budgets = "0.5";
  options.run.default_policies = comparable_policies(quick, options.run.model);
  if (!given("--needles") && !given("--needles-file") && options.run.model.empty()) {
    options.run.needles = quick ? 2 : bundled_needles;
  }
}

/// How a study is shown.
template <typename Study>
struct Views {
  std::string_view command;
  Json (*rows)(const Study& study);
  std::string (*table)(const Study& study);
};

template <typename Study>
void print_study(const Study& study, const Machine& machine, bool json, const Views<Study>& views) {
  if (!json) {
    print_out("model    {}\nmachine  {}, {}{}\n\n{}", study.model, machine.cpu, machine.isa,
              quick_note(study.quick), views.table(study));
    return;
  }
  Json document = document_head(views.command, study.config, machine);
  document["rows"] = views.rows(study);
  if (study.quick) {
    for (Json& row : document["rows"]) row["parameters"]["quick"] = true;
  }
  print_document(document);
}

/// Warns once about each policy whose clustering was planned by loose fits.
class PlanWarnings {
 public:
  explicit PlanWarnings(bool quiet) : quiet_(quiet) {}

  void take(const std::string& policy, const std::optional<policies::CostModel>& planned_by) {
    if (planned_by && told_.insert(policy).second) warn_of_loose_fits(policy, *planned_by, quiet_);
  }

 private:
  bool quiet_;
  std::set<std::string> told_;
};

Status check_report(const QualityOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.run.shared));
  std::vector<NamedFile> sources = job_sources(options.run, config);
  for (const std::string& file : options.text_files) sources.push_back({"--text", file});
  for (const std::string& file : options.token_files) sources.push_back({"--tokens", file});
  return check_targets({{"--report", options.report_file}}, sources);
}

Result<int> bench_quality(const QualityOptions& options) {
  TERRACE_TRY(check_report(options));
  Progress progress(options.run.shared.quiet);
  TERRACE_ASSIGN(const QualityStudy study, study_quality(options, progress));
  PlanWarnings warnings(options.run.shared.quiet);
  for (const TextQuality& text : study.texts) {
    for (const QualityCell& cell : text.cells) {
      if (cell.figures) warnings.take(cell.policy, cell.figures->planned_by);
    }
  }
  const Machine machine = read_machine(study.gpu);
  print_study(study, machine, options.run.shared.json(),
              {"bench quality", quality_rows, quality_table});
  // The table comes first: a page that cannot be written must not cost it.
  if (!options.report_file.empty()) {
    TERRACE_TRY(
        replace_file(options.report_file, quality_page(study, machine, page_origin(study.quick))));
  }
  return 0;
}

Result<int> bench_drift(const DriftOptions& options) {
  Progress progress(options.run.shared.quiet);
  TERRACE_ASSIGN(const DriftStudy study, study_drift(options, progress));
  PlanWarnings warnings(options.run.shared.quiet);
  for (const DriftRun& run : study.runs) warnings.take(run.policy, run.planned_by);
  print_study(study, read_machine(study.gpu), options.run.shared.json(),
              {"bench drift", drift_rows, drift_table});
  return 0;
}

constexpr std::string_view quality_columns = R"(Columns:
  bits                      cost of a token (or byte) of the scored text to the model
  over, over %              difference to full attention; s.e. is its standard error
  error                     of attention's outputs: norm of the difference over full's norm
  mass                      share of full attention's weights that lies on attended rows
  recall                    share of the rows with most weight that were selected
  digits                    share of the needles' digits that were right
  entries, estimates        attended in a step; the part of them that stands for unfetched rows
  index kB                  size of the index
)";

constexpr std::string_view drift_columns = R"(Columns:
  from step N               recall of the steps from there on: share of the rows with most weight
                            that were selected
  settled                   recall in the second half of the steps after the turn
  refreshes                 indexes that were built again; 0 where the index only grows
  step ms, p99, longest     time of a step: median, 99th of a hundred, and the longest
)";

}  // namespace

void add_quality_bench(CLI::App& bench, Invocation& invocation) {
  CLI::App* const command = bench.add_subcommand(
      "quality", "what each policy keeps of full attention: policies x budgets x texts");
  const auto options = std::make_shared<QualityOptions>();
  RunOptions& run = options->run;
  command->add_flag("--quick", options->quick, "small and short: whether it works, not how well");
  add_model_option(*command, run.model);
  command->add_option("--text", options->text_files, "texts whose bytes are the tokens")
      ->option_text("FILE");
  command->add_option("--tokens", options->token_files, "little-endian 32-bit ids")
      ->option_text("FILE");
  command->add_option("--budget", options->budgets, "budgets, separated by commas [0.05,0.1,0.2]")
      ->option_text("LIST");
  add_count(*command, "--context", run.context, "tokens of prompt [4096]");
  add_count(*command, "--decode", run.decode, "steps scored after it [512]");
  add_needle_options(*command, "facts to plant and ask for [20]", run);
  command->footer(std::string(needle_help()).append(quality_columns));
  command->add_option("--report", options->report_file, "write a page with pictures")
      ->option_text("FILE");
  add_policy_flags(
      *command, run,
      "all that retrieve, and h2o, snapkv, chelsea, smartkv where the model has gates");
  add_shared_options(*command, run.shared);
  command->callback([command, options, &invocation] {
    fill_in(*command, *options);
    invocation = {[options] { return bench_quality(*options); }, options->run.shared.verbose};
  });
}

void add_drift_bench(CLI::App& bench, Invocation& invocation) {
  CLI::App* const command =
      bench.add_subcommand("drift", "what policies find as a long output turns to another topic");
  command->footer(std::string(drift_columns));
  const auto options = std::make_shared<DriftOptions>();
  RunOptions& run = options->run;
  run.default_policies = "pqcache,qpq,clusterkv,wave";
  command->add_flag("--quick", options->quick, "small and short: whether it works, not how well");
  add_model_option(*command, run.model);
  command->add_option("--text", run.text_file, "text whose bytes are the tokens")
      ->option_text("FILE");
  command->add_option("--tokens", run.tokens_file, "little-endian 32-bit ids")->option_text("FILE");
  command->add_option("--turn", options->turn_file, "text, or ids, that the output turns to")
      ->option_text("FILE");
  add_count(*command, "--turn-after", options->turn_after, "decoded tokens [500]");
  add_count(*command, "--refresh", options->refresh_tokens, "tokens between two indexes [256]");
  add_count(*command, "--context", run.context, "tokens of prompt [4096]");
  add_count(*command, "--decode", run.decode, "tokens of output [2000]");
  add_policy_flags(*command, run, run.default_policies);
  add_shared_options(*command, run.shared);
  command->callback([command, options, &invocation] {
    const auto given = [command](const char* option) { return command->count(option) > 0; };
    if (!given("--context")) options->run.context = options->quick ? 256 : 4096;
    if (!given("--decode")) options->run.decode = options->quick ? 60 : 2000;
    if (options->quick && !given("--turn-after")) options->turn_after = 20;
    if (options->quick && !given("--refresh")) options->refresh_tokens = 16;
    if (options->quick) options->span = 10;
    invocation = {[options] { return bench_drift(*options); }, options->run.shared.verbose};
  });
}

}  // namespace terrace::apps
