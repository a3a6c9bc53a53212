// `terrace tune`: finds the cache that serves a trace best in a given amount of device memory.
#include "command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "document.hpp"
#include "output.hpp"
#include "page_origin.hpp"
#include "progress.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/runtime/machine_profile.hpp"
#include "terrace/tuning/tuner.hpp"
#include "trace/actions.hpp"
#include "tune/options.hpp"
#include "tune/prefixes.hpp"
#include "tune/report.hpp"

namespace terrace::apps {
namespace {

constexpr std::array tune_flags{
    KeyFlag{"--device-memory", "device.memory", "all there is for KV, index, staging and cache"},
    KeyFlag{"--profile", "profile", "a preset machine, or the link of a measured one"},
    KeyFlag{"--link-bandwidth", "link.bandwidth", "of the link when no profile is named"},
    KeyFlag{"--link-latency", "link.latency", "of the link when no profile is named"},
};

/// The link of the config, used if there is no profile.
offload::LinkOptions configured_link(const Config& config) {
  const double bandwidth = config.bytes_per_second("link.bandwidth");
  return {.bandwidth_bytes_per_second = std::isinf(bandwidth) ? 0 : bandwidth,
          .latency = config.duration("link.latency")};
}

/// If there is no preset, costs come from the record. `settings` must outlive the returned object.
auto costs_finder(const Settings& settings) {
  return [&settings](const tuning::TraceHead& head,
                     const tuning::TraceEnd& end) -> Result<tuning::StepCosts> {
    const std::string& profile = settings.config.text("profile");
    if (profile.empty()) return tuning::recorded_costs(head, end, configured_link(settings.config));
    TERRACE_ASSIGN(const auto measured, settings.profile);
    return tuning::profile_costs(*measured, head, end).map_error([&](const Error& error) {
      return error.while_doing("--profile " + profile);
    });
  };
}

std::string describe_costs(const Config& config) {
  if (!config.text("profile").empty()) return config.text("profile");
  return "the machine that recorded the trace, link " + describe_link(config);
}

/// Nothing that is written may take the place of what is read.
Status check_files(const TuneOptions& options, const Config& config) {
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  for (const NamedFile& file : model_sources(options.model)) sources.push_back(file);
  sources.push_back({"--trace", options.trace});
  return check_targets(
      {{"--write-config", options.config_target}, {"--report", options.report_target}}, sources);
}

/// The settings that a trace was recorded with cannot be changed, and those of the cache are
/// searched: a key of either would not be looked at.
Status check_keys(const Config& config) {
  constexpr std::array taken{"device.memory", "profile", "link.bandwidth",
                             "link.latency",  "seed",    "isa"};
  for (const ConfigKey& key : config_keys()) {
    const bool asked_for = config.source(key.name).origin == ConfigOrigin::flag;
    if (!asked_for || std::ranges::find(taken, key.name) != taken.end()) continue;
    return fail(Errc::invalid_argument,
                "--set {}: tune does not take it: retrieval is as the trace has it, and the cache "
                "is what is searched",
                key.name);
  }
  return {};
}

/// A profile has its own link: what was asked for beside it would not be looked at.
Status check_link(const Config& config) {
  if (config.text("profile").empty()) return {};
  for (const char* const key : {"link.bandwidth", "link.latency"}) {
    if (config.source(key).origin != ConfigOrigin::flag) continue;
    return fail(Errc::invalid_argument,
                "{}: profile {} says what the link is like; leave one of them out", key,
                shown(config.text("profile")));
  }
  return {};
}

/// Names all that is missing at once.
Status check_all_given(const TuneOptions& options, const Config& config) {
  std::string missing;
  const auto lack = [&missing](const char* option) {
    missing += fmt::format("{}{}", missing.empty() ? "" : "; ", option);
  };
  if (options.trace.empty()) lack("--trace FILE, what to tune for");
  if (config.is("device.memory", "unlimited")) {
    lack("--device-memory SIZE, as 2GiB: all for sinks, window, index, staging and cache");
  }
  if (!options.trace.empty() && config.text("profile").empty()) {
    const auto reader = tuning::TraceReader::open(options.trace);  // its flaws are told later
    if (reader && reader->head().of_requests()) {
      lack("--profile PRESET or FILE, for requests have no times of a run");
    }
  }
  if (missing.empty()) return {};
  return fail(Errc::invalid_argument, "tune lacks {}", missing);
}

/// A config is of runs, and names their retrieval and blocks.
Status check_config_target(const TuneOptions& options, const tuning::TraceHead& head) {
  if (options.config_target.empty() || !head.of_requests()) return {};
  return fail(Errc::invalid_argument,
              "--write-config: the trace is of requests that were imported, and no run has their "
              "units: leave it out, and apply the recommendation in the program that serves them");
}

Result<tuning::TuneRequest> make_request(const TuneOptions& options, const Settings& settings) {
  const Config& config = settings.config;
  TERRACE_TRY(check_all_given(options, config));
  TERRACE_TRY(check_keys(config));
  TERRACE_TRY(check_link(config));
  TERRACE_TRY(check_files(options, config));
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.trace));
  if (!options.model.empty()) TERRACE_TRY(tuning::check_model(reader.head(), options.model));
  TERRACE_TRY(check_config_target(options, reader.head()));
  tuning::TuneRequest request{.trace = options.trace,
                              .device_memory = config.size_bytes("device.memory")};
  TERRACE_ASSIGN(request.policies, split_names("--policies", options.policies));
  if (names_preset(config)) {
    TERRACE_ASSIGN(request.costs, tuning::preset_costs(config.text("profile"), reader.head()));
  } else {
    request.find_costs = costs_finder(settings);
  }
  return request;
}

/// All are written before the first gets its name.
Status write_files(const TuneOptions& options, const tuning::TuneResult& result,
                   const tuning::TuneRequest& request, const Config& config) {
  std::vector<PendingFile> files;
  const auto write = [&](const std::string& target, const std::string& content) -> Status {
    TERRACE_ASSIGN(PendingFile file, PendingFile::write(target, content));
    files.push_back(std::move(file));
    return {};
  };
  if (!options.config_target.empty()) {
    const Config tuned = tuning::tuned_config(result, result.recommended(), request.device_memory);
    const std::string heading =
        fmt::format("# Tuned for {} of device memory and {}.\n# Trace {}: {}.\n",
                    format_size(request.device_memory), describe_costs(config),
                    shown(options.trace), tuning::describe_trace(result));
    TERRACE_TRY(write(options.config_target, heading + write_config(tuned)));
  }
  if (!options.report_target.empty()) {
    TERRACE_TRY(write(options.report_target,
                      tuning::report_page(result, request, describe_costs(config), page_origin())));
  }
  return publish_all(files);
}

/// How the recommended cache compares with no cache, and with what else is as good, a line each.
std::string comparison(const tuning::TuneResult& result) {
  const tuning::TunedRow& best = result.recommended();
  const std::string tie = tuning::describe_tie(result);
  const std::string words =
      best.cache.none()
          ? std::string("No cache that was tried is faster by more than a tie.")
          : fmt::format("It is {:.2f} times as fast as no cache.",
                        result.without_cache.seconds_per_token() / best.seconds_per_token());
  return tie.empty() ? words : fmt::format("{}\n{}", words, tie);
}

void print_result(const tuning::TuneResult& result, std::size_t device_memory,
                  const std::string& costs) {
  const tuning::TunedRow& best = result.recommended();
  print_out(
      "trace    {}\n"
      "machine  {}\n"
      "memory   {}; sinks, window, index and staging take {} of it\n\n{}\n"
      "recommended: {}: {:.4f} ms a {}\n{}\n",
      tuning::describe_trace(result), costs, format_size(device_memory),
      format_size(result.fixed_bytes), tuned_table(result), tuning::describe(best),
      1e3 * best.seconds_per_token(), result.head.step_name(), comparison(result));
}

Result<int> tune(const TuneOptions& options) {
  TERRACE_ASSIGN(const Settings settings, resolve_settings(options.shared));
  if (!options.tiers.empty()) return tune_for_prefixes(options, settings);
  TERRACE_TRY(refuse_prefix_options(options));
  const Config& config = settings.config;
  Progress progress(options.shared.quiet);
  TERRACE_ASSIGN(tuning::TuneRequest request, make_request(options, settings));
  request.progress = [&](double share) { progress.show("tune", "searching", share); };
  const Machine machine = read_machine();
  TERRACE_ASSIGN(const auto threads, offload::make_parallel({.threads = machine.cores}));
  auto result = tuning::tune(request, *threads);
  progress.clear();
  if (!result) return tl::unexpected(result.error());
  if (options.shared.json()) {
    Json document = document_head("tune", config, machine);
    Json rows = Json::array();
    for (const tuning::TunedRow& row : result->rows) rows.push_back(tuned_object(*result, row));
    document["rows"] = rows;
    document["recommended"] = tuned_object(*result, result->recommended());
    document["without_cache"] = tuned_object(*result, result->without_cache);
    document["costs"] = describe_costs(config);
    document["approximate"] = result->end.losses > 0;
    document["offline_left_out"] = result->offline_left_out;
    document["optimum"] = "bound: slots may be divided over time and layers";
    print_document(document);
  } else {
    print_result(*result, request.device_memory, describe_costs(config));
    print_losses(result->end);
  }
  TERRACE_TRY(write_files(options, *result, request, config));
  return 0;
}

constexpr std::string_view tune_columns = R"(Columns:
  parameters                admission: always admits missed units, refill admits the units that
                            the last steps wanted, every R-th step; and the policy's own setting
  unit                      tokens of a block, or a cluster, cached as one
  tokens/layer              the cache's size in tokens of a layer, all KV heads
  rows hit, units hit       share of the wanted rows, or units, that were in the cache
  kB/tok, kB/req            moved for a token, or for an imported request: fetched on demand, and
                            refilled (promoted) before they are wanted
  predicted                 time of a token or request, from the trace, the link and the cache
  of optimum                hits over a bound: the hits of a cache of that size that knows the
                            future and divides its slots freely over time and layers.
                            belady knows the future, too, but counts units, not rows: no bound
  tie                       = where the time is within 1 % of the least; recommended is no cache,
                            otherwise the policy that is listed first above, and among its ties
                            the one that moves the fewest bytes
)";

std::string footer() {
  std::string text = "Presets (--profile):\n";
  for (const tuning::CostPreset& preset : tuning::cost_presets()) {
    text += fmt::format("  {:<26}{}\n", preset.name, preset.meaning);
  }
  text += "Replacement (--policies):\n";
  for (const auto& entry : policies::replacement_policies()) {
    text += fmt::format("  {:<26}{}\n", entry.name, entry.meaning);
  }
  return text.append(tune_columns);
}

}  // namespace

void add_tune_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command =
      program.add_subcommand("tune", "find the cache that serves a recorded trace best");
  command->footer(footer());
  const auto options = std::make_shared<TuneOptions>();
  command->add_option("--trace", options->trace, "what terrace run --trace recorded")
      ->option_text("FILE REQUIRED");
  command->add_option("--policies", options->policies, "replacement policies, by commas [all]")
      ->option_text("LIST");
  command
      ->add_option("--model", options->model,
                   "refuse a trace that is not of this model; with --memory: its shape")
      ->option_text("DIR");
  command
      ->add_option("--write-config", options->config_target,
                   "write the recommended config, for terrace run --config")
      ->option_text("FILE");
  command->add_option("--report", options->report_target, "write a page of drawings and figures")
      ->option_text("FILE.html");
  add_prefix_options(*command, *options);
  add_key_flags(*command, tune_flags, options->shared);
  add_shared_options(*command, options->shared);
  command->callback([options, &invocation] {
    invocation = {[options] { return tune(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
