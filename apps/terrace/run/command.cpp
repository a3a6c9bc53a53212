// `terrace run`: prefills a context, decodes once for each policy, and says what each costs and
// keeps.
#include "command.hpp"

#include <fmt/core.h>

#include <CLI/Error.hpp>
#include <array>
#include <cstdio>
#include <memory>

#include "document.hpp"
#include "output.hpp"
#include "page_origin.hpp"
#include "profile_report.hpp"
#include "progress.hpp"
#include "run/model_notes.hpp"
#include "run/needle_options.hpp"
#include "run/page.hpp"
#include "run/policy_run.hpp"
#include "run/report.hpp"
#include "run/table.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/policies/retrieval.hpp"
#include "tier_sizes.hpp"

namespace terrace::apps {
namespace {

constexpr std::array key_flags{
    KeyFlag{"--policy", "retrieval.policy",
            "policies to run, separated by commas, or all [full,streaming,oracle,pqcache,signs]"},
    KeyFlag{"--budget", "retrieval.budget", "tokens attended per step: 0.1, 2048 or mass:0.95"},
    KeyFlag{"--cache", "cache.policy", "replacement policy of the device cache, or none"},
    KeyFlag{"--cache-granularity", "cache.granularity",
            "unit that is cached: block, cluster or row"},
    KeyFlag{"--cache-tokens", "cache.tokens", "cache capacity in tokens per layer"},
    KeyFlag{"--backend", "backend", "auto, host or cuda"},
    KeyFlag{"--placement", "placement", "offload or resident_first"},
    KeyFlag{"--device-memory", "device.memory", "limit for KV, index, cache and staging: 8GiB"},
    KeyFlag{"--host-memory", "host.memory", "limit for KV and index in host memory: 64GiB"},
    KeyFlag{"--nvme", "tier.nvme.path", "file for rows that host memory has no room for"},
    KeyFlag{"--nvme-bytes", "tier.nvme.bytes", "size of that file [16GiB]"},
    KeyFlag{"--kv-dtype", "kv.dtype", "element type of stored keys and values: f16, bf16 or f32"},
    KeyFlag{"--link-bandwidth", "link.bandwidth", "imitate a link of this speed: 25GB/s"},
    KeyFlag{"--link-latency", "link.latency", "start-up time of a copy on the imitated link: 10us"},
    profile_flag,
};

/// Reads "device=2,host=1" into the keys threads.device and threads.host.
void read_threads(std::string_view text, SharedOptions& options) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t equals = item.find('=');
    const std::string_view side = item.substr(0, equals);
    if (equals == std::string_view::npos || (side != "device" && side != "host")) {
      throw CLI::ValidationError("--threads", "write device=N,host=N");
    }
    options.flag_values.push_back(
        {"--threads", fmt::format("threads.{}", side), std::string(item.substr(equals + 1))});
  }
}

void add_job_options(CLI::App& command, RunOptions& options) {
  add_model_option(command, options.model);
  CLI::Option* const text = command.add_option(
      "--text", options.text_file, "text whose bytes are the tokens; - is standard input");
  command
      .add_option("--tokens", options.tokens_file,
                  "little-endian 32-bit ids, for any vocabulary; or -")
      ->excludes(text)
      ->option_text("FILE");
  text->option_text("FILE");
  add_count(command, "--context", options.context, "tokens of prompt [4096]");
  add_count(command, "--decode", options.decode, "steps decoded after it [128]");
  add_count(command, "--prefill-chunk", options.prefill_chunk,
            "tokens of a prompt at a time, through all layers [0: whole]");
  command
      .add_option("--turns", options.turns_file,
                  "later prompts: a JSON list of texts, or of lists of ids; or -")
      ->option_text("FILE");
  add_needle_options(command, "facts to plant in the context and ask for", options);
  command.add_option("--report", options.report_file, "write a page of drawings and figures")
      ->option_text("FILE.html");
  command
      .add_option("--timeline", options.timeline_file,
                  "write what each queue did when, for chrome://tracing or Perfetto")
      ->option_text("FILE");
  command
      .add_option(
          "--trace", options.trace_file,
          "record what each layer and head selects, for terrace trace and terrace tune; with "
          "--turns: which prefixes prompts share")
      ->option_text("FILE");
  command
      .add_option("--save", options.save,
                  "keep the context's rows and indexes in the file of --nvme, under a name")
      ->option_text("NAME");
  command
      .add_option("--restore", options.restore,
                  "begin with what earlier runs have kept of the same context under a name")
      ->option_text("NAME");
  command.add_flag("--generate", options.generate,
                   "decode greedily until the model ends the text, and print it");
  command
      .add_option_function<std::string>(
          "--threads",
          [&options](const std::string& value) { read_threads(value, options.shared); },
          "threads of the imitated device and of the host")
      ->option_text("device=N,host=N");
}

void warn_of_long_context(const RunJob& job, bool quiet) {
  const std::size_t trained = job.model.config().positions_max;
  const std::size_t tokens = job.conversation_tokens();
  if (quiet || tokens <= trained) return;
  warn(
      "{} tokens are more than the {} positions the model was made for; its words mean little, "
      "times and bytes hold",
      tokens, trained);
}

void warn_of_small_file(const RunJob& job, bool quiet) {
  if (quiet) return;
  if (const auto fault = fault_of_file_size(job.config)) warn("{}", *fault);
}

/// Warns once, about the first policy whose cache has no slot: the other policies mostly have the
/// same fault.
Status warn_of_no_caches(const RunJob& job, bool quiet) {
  for (const std::string& policy : job.policies) {
    TERRACE_ASSIGN(const JobPolicy its, policy_of_job(job, policy));
    if (its.traits.selects && warn_of_no_cache(its.options.cache, its.cache_sharing(), quiet))
      break;
  }
  return {};
}

/// All are written before the first gets its name.
Status write_files(const RunOptions& options, const std::string& page, const Timeline& timeline,
                   TraceRecording* trace, PromptRecording* prompts) {
  std::vector<PendingFile> files;
  if (!options.report_file.empty()) {
    TERRACE_ASSIGN(PendingFile file, PendingFile::write(options.report_file, page));
    files.push_back(std::move(file));
  }
  if (!options.timeline_file.empty()) {
    TERRACE_ASSIGN(PendingFile file, timeline.write(options.timeline_file));
    files.push_back(std::move(file));
  }
  if (trace != nullptr) {
    TERRACE_ASSIGN(PendingFile file, trace->write());
    files.push_back(std::move(file));
  }
  if (prompts != nullptr) {
    TERRACE_ASSIGN(PendingFile file, prompts->write());
    files.push_back(std::move(file));
  }
  return publish_all(files);
}

Result<int> run(const RunOptions& options) {
  TERRACE_ASSIGN(const RunJob job, prepare_job(options));
  show_model_notes(job.model, options.shared);
  warn_of_long_context(job, options.shared.quiet);
  warn_of_small_file(job, options.shared.quiet);
  TERRACE_TRY(warn_of_no_caches(job, options.shared.quiet));
  TERRACE_ASSIGN(const auto trace, TraceRecording::open(job, options.trace_file));
  TERRACE_ASSIGN(const auto prompts, PromptRecording::open(job, options.trace_file));
  Progress progress(options.shared.quiet);
  engine::AttentionProbe probe(job.model.config().kv_shape(kv_dtype(job)),
                               job.context + job.decode);
  TERRACE_ASSIGN(const ReferencePass reference, run_reference_pass(job, probe, progress));
  Timeline timeline;
  Timeline* const recorded = options.timeline_file.empty() ? nullptr : &timeline;
  std::vector<PolicyFigures> figures;
  for (const std::string& policy : job.policies) {
    auto one = run_policy({.job = job,
                           .reference = reference,
                           .probe = probe,
                           .progress = progress,
                           .timeline = recorded,
                           .trace = trace.get(),
                           .prompts = prompts.get()},
                          policy);
    progress.clear();
    if (!one) return tl::unexpected(one.error().while_doing("policy " + policy));
    figures.push_back(std::move(*one));
  }
  progress.clear();
  for (const PolicyFigures& one : figures) {
    if (one.planned_by) {
      warn_of_loose_fits(one.policy, *one.planned_by, options.shared.quiet);
    }
  }
  const Machine machine = read_machine(job.backend.device);
  if (options.shared.json()) {
    print_document(run_document(job, machine, figures));
  } else {
    print_out("{}", run_table(job, machine, figures));
  }
  // The result is printed first: a full disk must not cost it.
  const std::string page = run_page(job, machine, figures, page_origin());
  TERRACE_TRY(write_files(options, page, timeline, trace.get(), prompts.get()));
  return 0;
}

constexpr std::string_view turns_help = R"(Turns (--turns):
  After the context and its decoded tokens, each turn is a prompt over the tiers, in pieces of
  --prefill-chunk tokens [512], and --decode steps are decoded after it: greedily with --generate,
  otherwise with the next tokens of the text. The table is of the context alone. Needles asked
  after the text are asked for after the last turn; needles asked in the prompt have no turns
  before them. --trace records the prompts of the first policy, as a trace of prefixes in
  chunks of tier.chunk_tokens, for terrace tune --memory.
)";

constexpr std::string_view columns = R"(Columns of the table, and the line below:
  bits/byte, its change     cost of the text after the context to the model, the difference to
                            full attention, and its standard error
  recall                    share of the rows with most weight that were selected
  mass                      share of full attention's weights that lies on attended rows
  hit rate                  share of selected rows that were found in the device's cache
  bytes demand, refill      a token's missed rows, and the rows that the cache admitted
  bytes select              moved to select for a token: codes, centroids and ids. The index
                            itself is index_bytes of --format json
  device peak               KV, index, cache and staging in device memory while decoding; the
                            peak of prompts is prompt_device_peak_bytes of --format json
  attention                 select, fetch, attend, wait and update: all but the model's own work
  upkeep                    work on the cache on the host, and at most how much of it compute
                            does not hide
)";

/// The policies and their meanings, for --help.
std::string legend() {
  std::string text = "Policies (--policy):\n";
  for (const auto& entry : policies::retrieval_policies()) {
    text += fmt::format("  {:<26}{}\n", entry.name, entry.meaning);
  }
  text += "Retention, beside streaming (--policy): other tokens are dropped for good\n";
  for (const auto& entry : policies::retention_policies()) {
    text += fmt::format("  {:<26}{}\n", entry.name, entry.meaning);
  }
  text += "Replacement in the cache (--cache):\n";
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    text += fmt::format("  {:<26}{}\n", entry.name, entry.meaning);
  }
  text += turns_help;
  text += needle_help();
  text += columns;
  return text;
}

}  // namespace

void add_run_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command =
      program.add_subcommand("run", "prefill a context, decode once per policy, and compare");
  command->footer(legend());
  const auto options = std::make_shared<RunOptions>();
  add_job_options(*command, *options);
  add_key_flags(*command, key_flags, options->shared);
  add_shared_options(*command, options->shared);
  command->callback([options, &invocation] {
    invocation = {[options] { return run(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
