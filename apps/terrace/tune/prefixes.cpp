#include "tune/prefixes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "model_shapes.hpp"
#include "output.hpp"
#include "page_origin.hpp"
#include "progress.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/tuning/prefix_tuner.hpp"
#include "terrace/tuning/trace_file.hpp"
#include "tune/prefix_report.hpp"

namespace terrace::apps {
namespace {

/// A tier as the daemon has it, from the top.
struct KnownTier {
  const char* name;
  const char* key;  ///< of its size
  double usual_rate;
};
constexpr std::array known_tiers{
    KnownTier{"memory", "daemon.memory", 10e9},
    KnownTier{"nvme", "tier.nvme.bytes", 2e9},
};

Result<double> parse_rate(std::string_view text) {
  if (const auto rate = parse_bandwidth(text)) return *rate;
  return fail(Errc::invalid_argument, "--load-rate {}: give bytes a second, as 2GB/s", shown(text));
}

/// Returns the rate at which chunks of a tier come to the device, if the profile says it: of the
/// file what its disk or the link has less of.
std::optional<double> measured_rate(const Settings& settings, std::string_view tier) {
  if (!settings.profile || !*settings.profile) return std::nullopt;
  const MachineProfile& profile = **settings.profile;
  const auto link = profile.link ? std::optional(profile.link->bandwidth) : std::nullopt;
  if (tier == "memory" || !profile.nvme) return tier == "memory" ? link : std::nullopt;
  return std::min(profile.nvme->read, link.value_or(profile.nvme->read));
}

/// Sets the sizes in a config, whose keys check them.
Result<std::vector<PrefixTierSetting>> tiers_of(const TuneOptions& options,
                                                const Settings& settings, Config& sizes) {
  TERRACE_ASSIGN(const auto texts, split_names("--memory", options.tiers));
  if (texts.size() > known_tiers.size()) {
    return fail(Errc::invalid_argument,
                "--memory names {} tiers; there are two: the daemon's memory and its file, or the "
                "file alone",
                texts.size());
  }
  std::vector<std::string> rates;
  if (!options.load_rates.empty()) {
    TERRACE_ASSIGN(rates, split_names("--load-rate", options.load_rates));
    if (rates.size() != texts.size()) {
      return fail(Errc::invalid_argument, "--load-rate has {} rates, and --memory {} sizes",
                  rates.size(), texts.size());
    }
  }
  std::vector<PrefixTierSetting> tiers;
  const auto known = std::span(known_tiers).last(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TERRACE_TRY(sizes.set(known[i].key, texts[i], {ConfigOrigin::flag, "--memory"}));
    PrefixTierSetting& tier = tiers.emplace_back(PrefixTierSetting{.key = known[i].key});
    tier.tier = {.name = known[i].name,
                 .bytes = sizes.size_bytes(known[i].key),
                 .load_bytes_per_second = known[i].usual_rate};
    if (!rates.empty()) {
      TERRACE_ASSIGN(tier.tier.load_bytes_per_second, parse_rate(rates[i]));
      tier.rate_source = "--load-rate";
    } else if (const auto measured = measured_rate(settings, known[i].name)) {
      tier.tier.load_bytes_per_second = *measured;
      tier.rate_source = settings.config.text("profile");
    }
  }
  return tiers;
}

/// Refuses what is of another tuning: it would not be looked at.
Status check_mixed(const TuneOptions& options, const Config& config) {
  if (options.policies != "all") {
    return fail(Errc::invalid_argument,
                "--policies does not go with --memory: stored chunks are replaced as the daemon "
                "does it");
  }
  constexpr std::array taken{"profile", "seed", "isa", "kv.dtype"};
  for (const ConfigKey& key : config_keys()) {
    const ConfigSource& source = config.source(key.name);
    if (source.origin != ConfigOrigin::flag || std::ranges::find(taken, key.name) != taken.end()) {
      continue;
    }
    return fail(Errc::invalid_argument,
                "{}: with --memory tune sizes tiers of stored prefixes, and does not look at {}",
                source.place, key.name);
  }
  return {};
}

/// Returns the shape whose bytes a token has: as named, or that of the trace's model.
Result<KvShape> shape_of(const TuneOptions& options, const Config& config,
                         const tuning::TraceHead& head) {
  if (!options.model.empty() && !head.model_fingerprint.empty()) {
    TERRACE_TRY(tuning::check_model(head, options.model));
  }
  if (options.model.empty() && options.shape.empty()) return head.shape;
  return find_shape(options.shape, options.model, *parse_dtype(config.text("kv.dtype")));
}

Status check_all_given(const TuneOptions& options, const tuning::TraceHead* head) {
  std::string missing;
  const auto lack = [&missing](const char* option) {
    missing += fmt::format("{}{}", missing.empty() ? "" : "; ", option);
  };
  if (options.trace.empty()) lack("--trace FILE, what to tune for");
  if (options.prefill_rate == 0) lack("--prefill-rate N, tokens that a second computes");
  const bool has_model = head == nullptr || !head->model.empty();
  if (!has_model && options.shape.empty() && options.model.empty()) {
    lack("--shape NAME or --model DIR, for the trace names no model");
  }
  if (missing.empty()) return {};
  return fail(Errc::invalid_argument, "tune lacks {}", missing);
}

/// All are written before the first gets its name.
Status write_files(const PrefixReport& report, const TuneOptions& options, const Config& config) {
  std::vector<PendingFile> files;
  if (!options.config_target.empty()) {
    const auto text = prefix_config(report, report.result.asked(), config);
    if (!text) return tl::unexpected(text.error().while_doing("--write-config"));
    TERRACE_ASSIGN(PendingFile file, PendingFile::write(options.config_target, *text));
    files.push_back(std::move(file));
  }
  if (!options.report_target.empty()) {
    const std::string page = prefix_page(report, config, page_origin());
    TERRACE_ASSIGN(PendingFile file, PendingFile::write(options.report_target, page));
    files.push_back(std::move(file));
  }
  return publish_all(files);
}

}  // namespace

void add_prefix_options(CLI::App& command, TuneOptions& options) {
  command
      .add_option(
          "--memory", options.tiers,
          "of prefix traffic: terraced's memory and its file, or the file alone: 8GiB,64GiB")
      ->option_text("SIZE[,SIZE]");
  command
      .add_option("--prefill-rate", options.prefill_rate,
                  "with --memory: tokens a second that a prompt is computed at")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  command
      .add_option("--load-rate", options.load_rates,
                  "with --memory: how fast each tier is read [as --profile has it, or "
                  "10GB/s,2GB/s]")
      ->option_text("RATE[,RATE]");
  command
      .add_option("--shape", options.shape,
                  fmt::format("with --memory: {} [of the trace's model]", shape_names()))
      ->excludes(command.get_option("--model"))
      ->option_text("NAME");
}

Status refuse_prefix_options(const TuneOptions& options) {
  const char* const given = options.prefill_rate > 0      ? "--prefill-rate"
                            : !options.load_rates.empty() ? "--load-rate"
                            : !options.shape.empty()      ? "--shape"
                                                          : nullptr;
  if (given == nullptr) return {};
  return fail(Errc::invalid_argument,
              "{} goes with --memory SIZE,SIZE, which sizes tiers of stored prefixes", given);
}

Result<int> tune_for_prefixes(const TuneOptions& options, const Settings& settings) {
  const Config& config = settings.config;
  TERRACE_TRY(check_mixed(options, config));
  TERRACE_TRY(settings.profile);
  TERRACE_TRY(check_all_given(options, nullptr));
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.trace));
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  for (const NamedFile& file : model_sources(options.model)) sources.push_back(file);
  sources.push_back({"--trace", options.trace});
  TERRACE_TRY(check_targets(
      {{"--write-config", options.config_target}, {"--report", options.report_target}}, sources));
  if (reader.head().prefixes) TERRACE_TRY(check_all_given(options, &reader.head()));
  PrefixReport report;
  TERRACE_ASSIGN(report.tiers, tiers_of(options, settings, report.sizes));
  TERRACE_ASSIGN(const KvShape shape, shape_of(options, config, reader.head()));
  report.request = {.trace = options.trace,
                    .token_bytes = shape.layers * shape.token_bytes(),
                    .prefill_tokens_per_second = options.prefill_rate};
  for (const PrefixTierSetting& each : report.tiers) report.request.tiers.push_back(each.tier);
  Progress progress(options.shared.quiet);
  report.request.progress = [&](double share) { progress.show("tune", "simulating", share); };
  auto result = tuning::tune_prefixes(report.request);
  progress.clear();
  if (!result) return tl::unexpected(result.error());
  report.result = *std::move(result);
  if (options.shared.json()) {
    print_document(prefix_document(report, config));
  } else {
    print_out("{}", prefix_text(report));
  }
  TERRACE_TRY(write_files(report, options, config));
  return 0;
}

}  // namespace terrace::apps
