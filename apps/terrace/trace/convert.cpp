// `terrace trace convert`.
#include "terrace/tuning/convert.hpp"

#include <cstdio>
#include <filesystem>

#include "document.hpp"
#include "output.hpp"
#include "terrace/engine/model_config.hpp"
#include "terrace/engine/weights.hpp"
#include "terrace/tuning/import.hpp"
#include "trace/actions.hpp"

namespace terrace::apps {
namespace {

tuning::Conversion conversion(const TraceOptions& options, Progress& progress) {
  return {.source = options.file, .target = options.target, .progress = [&](double share) {
            progress.show(options.file, "convert", share);
          }};
}

/// Requests say which prefixes they share, a model says what these weigh.
Status import_prefixes(const TraceOptions& options, const Config& config,
                       const tuning::Conversion& files) {
  tuning::MooncakeOptions as;
  // A file's or the environment's is of runs, and not of these requests.
  if (config.source(block_tokens_flag.key).origin == ConfigOrigin::flag) {
    as.block_tokens = config.integer(block_tokens_flag.key);
  }
  if (options.model.empty()) return tuning::import_mooncake(files, as);
  TERRACE_ASSIGN(const auto model, engine::read_model_config(options.model));
  TERRACE_ASSIGN(std::string fingerprint, tuning::model_fingerprint(options.model));
  as.model = {.name = std::filesystem::path(options.model).filename().string(),
              .fingerprint = std::move(fingerprint),
              .shape = model.kv_shape(Dtype::f16),
              .weight_bytes = 2 * engine::parameter_count(model)};
  return tuning::import_mooncake(files, as);
}

Status import_requests(const TraceOptions& options, const Config& config, Progress& progress) {
  const tuning::Conversion files = conversion(options, progress);
  const bool prefixes = options.from == "mooncake";
  if (prefixes) {
    TERRACE_TRY(import_prefixes(options, config, files));
  } else if (options.from == "csv") {
    TERRACE_TRY(tuning::import_csv(files, options.objects));
  } else {
    TERRACE_TRY(tuning::import_oraclegeneral(files, options.objects));
  }
  progress.clear();
  if (options.shared.quiet || !options.model.empty()) return {};
  warn("bytes and times of this trace are those of no model{}",
       prefixes ? ", for none is named: give --model DIR" : ": a row counts as 256 bytes");
  return {};
}

bool to_csv(const TraceOptions& options) {
  return options.to.empty() ? std::filesystem::path(options.target).extension() == ".csv"
                            : options.to == "csv";
}

/// Refuses what the form that is read or written does not look at.
Status check_options(const TraceOptions& options, const Config& config) {
  if (options.target == "-") {
    return fail(Errc::invalid_argument, "OUT -: a file is needed, which takes its name when whole");
  }
  const bool prefixes = options.from == "mooncake";
  const bool objects = options.from == "csv" || options.from == "oraclegeneral";
  const tuning::ObjectOptions none;
  const bool columns = options.objects.id_column != none.id_column ||
                       options.objects.size_column != none.size_column;
  const auto is_given = [&](const char* key) {
    return config.source(key).origin == ConfigOrigin::flag;
  };
  struct Option {
    bool wrong;
    const char* name;
    const char* reason;
  };
  for (const Option& option :
       {Option{(prefixes || objects) && to_csv(options), "--to csv",
               "import the requests, then convert that trace"},
        Option{(prefixes || objects) && is_given("cache.granularity"),
               "--cache-granularity (cache.granularity)", "what it reads is cut already"},
        Option{objects && is_given(block_tokens_flag.key), "--block-tokens (kv.block_tokens)",
               "its objects have sizes"},
        Option{objects && !options.model.empty(), "--model", "its objects are of no model"},
        Option{options.from != "csv" && columns, "--obj-id-col or --obj-size-col",
               "only csv has columns"},
        Option{!objects && options.objects.ignore_sizes, "--ignore-obj-size",
               "only csv and oraclegeneral have objects"}}) {
    if (!option.wrong) continue;
    return fail(Errc::invalid_argument, "{} does not go with --from {}: {}", option.name,
                options.from, option.reason);
  }
  return {};
}

Status write_converted(const TraceOptions& options, const Config& config) {
  TERRACE_TRY(check_options(options, config));
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  const bool imports = options.from != "terrace";
  const bool standard_input = imports && options.file == "-";
  if (!standard_input) sources.push_back({"FILE", options.file});
  for (const NamedFile& file : model_sources(options.model)) sources.push_back(file);
  TERRACE_TRY(check_targets({{"OUT", options.target}}, sources));
  Progress progress(options.shared.quiet);
  if (imports) return import_requests(options, config, progress);
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  TERRACE_TRY(check_trace_model(options, reader.head()));
  const tuning::CacheUnit unit = chosen_unit(config, reader.head());
  const tuning::Conversion files = conversion(options, progress);
  if (to_csv(options)) return tuning::convert_to_csv(files, unit);
  if (is_set(config, "cache.granularity") && unit.granularity != CacheGranularity::block) {
    return fail(Errc::invalid_argument,
                "cache.granularity {} goes with --to csv: blocks are made of tokens",
                to_string(unit.granularity));
  }
  return tuning::convert_to_blocks(files, unit.block_tokens);
}

}  // namespace

Result<int> trace_convert(const TraceOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_TRY(write_converted(options, config));
  if (options.shared.json()) {
    Json document = document_head("trace convert", config, read_machine());
    document["written"] = options.target;
    print_document(document);
  }
  return 0;
}

}  // namespace terrace::apps
