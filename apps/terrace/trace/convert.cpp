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
Status import_requests(const TraceOptions& options, const Config& config, Progress& progress) {
  const tuning::Conversion files = conversion(options, progress);
  tuning::MooncakeOptions as;
  // A file's or the environment's is of runs, and not of these requests.
  if (config.source(block_tokens_flag.key).origin == ConfigOrigin::flag) {
    as.block_tokens = config.integer(block_tokens_flag.key);
  }
  if (options.model.empty()) {
    TERRACE_TRY(tuning::import_mooncake(files, as));
    progress.clear();
    if (!options.shared.quiet) {
      warn(
          "bytes and times of this trace are those of no model, for none is named: give --model "
          "DIR");
    }
    return {};
  }
  TERRACE_ASSIGN(const auto model, engine::read_model_config(options.model));
  TERRACE_ASSIGN(std::string fingerprint, tuning::model_fingerprint(options.model));
  as.model = {.name = std::filesystem::path(options.model).filename().string(),
              .fingerprint = std::move(fingerprint),
              .shape = model.kv_shape(Dtype::f16),
              .weight_bytes = 2 * engine::parameter_count(model)};
  return tuning::import_mooncake(files, as);
}

bool to_csv(const TraceOptions& options) {
  return options.to.empty() ? std::filesystem::path(options.target).extension() == ".csv"
                            : options.to == "csv";
}

/// Requests become a trace whose units are theirs: neither another form nor others may be asked
/// for.
Status check_import(const TraceOptions& options, const Config& config) {
  if (to_csv(options)) {
    return fail(Errc::invalid_argument,
                "--to csv takes no --from {}; import the requests, then convert that trace",
                options.from);
  }
  constexpr const char* granularity = "cache.granularity";
  if (config.source(granularity).origin != ConfigOrigin::flag) return {};
  return fail(Errc::invalid_argument,
              "--cache-granularity ({}) takes no --from {}: what it reads is cut already",
              granularity, options.from);
}

Status write_converted(const TraceOptions& options, const Config& config) {
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  const bool imports = options.from != "terrace";
  const bool standard_input = imports && options.file == "-";
  if (!standard_input) sources.push_back({"FILE", options.file});
  for (const NamedFile& file : model_sources(options.model)) sources.push_back(file);
  TERRACE_TRY(check_targets({{"OUT", options.target}}, sources));
  Progress progress(options.shared.quiet);
  if (imports) {
    TERRACE_TRY(check_import(options, config));
    return import_requests(options, config, progress);
  }
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  TERRACE_TRY(check_trace_model(options, reader.head()));
  const tuning::CacheUnit unit = chosen_unit(config, reader.head());
  const tuning::Conversion files = conversion(options, progress);
  if (to_csv(options)) return tuning::convert_to_csv(files, unit);
  if (is_set(config, "cache.granularity") && unit.granularity == CacheGranularity::cluster) {
    return fail(Errc::invalid_argument,
                "cache.granularity cluster goes with --to csv: blocks are made of tokens");
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
