// `terrace trace info`, `replay` and `convert`.
#include "command.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "document.hpp"
#include "progress.hpp"
#include "run/report.hpp"
#include "terrace/engine/model_config.hpp"
#include "terrace/engine/weights.hpp"
#include "terrace/tuning/convert.hpp"
#include "terrace/tuning/replay.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::apps {
namespace {

using tuning::TraceHead;

struct TraceOptions {
  SharedOptions shared;
  std::string file;
  std::string model;   ///< empty = not compared
  std::string target;  ///< convert
  std::string from = "terrace";
  std::string to = "blocks";
};

constexpr KeyFlag block_tokens_flag{"--block-tokens", "kv.block_tokens",
                                    "cut tokens into blocks of this size"};

constexpr std::array replay_flags{
    KeyFlag{"--cache", "cache.policy", "another replacement policy than the trace's, or none"},
    KeyFlag{"--cache-tokens", "cache.tokens", "another capacity in tokens per layer"},
    KeyFlag{"--cache-granularity", "cache.granularity", "another unit that is cached"},
    block_tokens_flag,
};

constexpr std::array convert_flags{
    KeyFlag{"--cache-granularity", "cache.granularity", "of csv: its unit, block or cluster"},
    block_tokens_flag,
};

Status check_model(const TraceHead& head, const std::string& model) {
  return model.empty() ? Status{} : tuning::check_model(head, model);
}

// A damaged file is no wrong usage, a trace of another model is.
Json head_object(const TraceHead& head) {
  Json granularities = Json::array();
  for (const auto granularity : {CacheGranularity::block, CacheGranularity::cluster}) {
    if (!head.serves({granularity, head.block_tokens})) continue;
    granularities.push_back(to_string(granularity));
  }
  return {{"unit", to_string(head.unit)},
          {"granularities", granularities},
          {"cache_granularity", to_string(head.cache.granularity)},
          {"source", head.source},
          {"model", head.model},
          {"policy", head.policy},
          {"budget", head.budget},
          {"layers", head.shape.layers},
          {"kv_heads", head.shape.kv_heads},
          {"head_dim", head.shape.head_dim},
          {"dtype", to_string(head.shape.dtype)},
          {"block_tokens", head.block_tokens},
          {"context_tokens", head.context_tokens},
          {"sink_tokens", head.sink_tokens},
          {"window_tokens", head.window_tokens},
          {"selected_tokens", head.selected_tokens}};
}

/// Reads a file to its end, checking every byte, and calls act(record) for every record.
template <typename Act>
Result<tuning::TraceEnd> each_record(const std::string& file, Progress& progress, const char* what,
                                     Act&& act) {
  TERRACE_ASSIGN(auto reader, tuning::TraceReader::open(file));
  TERRACE_TRY(reader.for_each([&](const tuning::TraceRecord& record) {
    act(record);
    progress.show(file, what, reader.progress());
  }));
  progress.clear();
  return reader.end();
}

Result<int> info(const TraceOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  TERRACE_TRY(check_model(reader.head(), options.model));
  Progress progress(options.shared.quiet);
  TERRACE_ASSIGN(const tuning::TraceEnd end,
                 each_record(options.file, progress, "check", [](const auto&) {}));
  const Json counts{{"steps", end.steps},           {"layer_steps", end.layer_steps},
                    {"selections", end.selections}, {"rows", end.rows},
                    {"sequences", end.sequences},   {"last_position", end.last_position}};
  if (options.shared.json()) {
    Json document = document_head("trace info", config, read_machine());
    document["trace"] = head_object(reader.head());
    document["counts"] = counts;
    print_document(document);
    return 0;
  }
  const Json head = head_object(reader.head());
  for (const Json* const part : {&head, &counts}) {
    for (const auto& [name, value] : part->items()) {
      fmt::print("{:<18} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return 0;
}

bool is_set(const Config& config, std::string_view key) {
  return config.source(key).origin != ConfigOrigin::default_value;
}

/// What the live run cached, or what the config says instead.
tuning::CacheUnit chosen_unit(const Config& config, const TraceHead& head) {
  tuning::CacheUnit unit = head.recorded();
  if (is_set(config, "kv.block_tokens")) unit.block_tokens = config.integer("kv.block_tokens");
  if (is_set(config, "cache.granularity")) {
    unit.granularity = config.is("cache.granularity", "cluster") ? CacheGranularity::cluster
                                                                 : CacheGranularity::block;
  }
  return unit;
}

/// The cache of the live run, with what the config says otherwise.
Result<tuning::ReplaySetup> replay_setup(const Config& config, const TraceHead& head) {
  const tuning::CacheUnit unit = chosen_unit(config, head);
  tuning::ReplaySetup setup{.cache = head.cache, .block_tokens = unit.block_tokens};
  TERRACE_ASSIGN(const RuntimeOptions wanted, RuntimeOptions::from(config, head.shape));
  CacheOptions& cache = setup.cache;
  cache.granularity = unit.granularity;
  // A cache without tokens has no policy, and one that gets some has to have one.
  const bool sized = is_set(config, "cache.tokens");
  if (is_set(config, "cache.policy") || (sized && wanted.cache.none()) || (sized && cache.none())) {
    cache.policy = wanted.cache.policy;
  }
  if (is_set(config, "cache.admission")) cache.admission = wanted.cache.admission;
  if (is_set(config, "cache.tokens")) cache.tokens = wanted.cache.tokens;
  if (is_set(config, "cache.sequence_tokens")) cache.sequence_tokens = wanted.cache.sequence_tokens;
  if (is_set(config, "cache.horizon")) cache.refill = wanted.cache.refill;
  for (const auto& entry : policies::replacement_policies()) {
    if (!entry.setting || !is_set(config, entry.setting->key)) continue;
    cache.replacement.*entry.setting->value = wanted.cache.replacement.*entry.setting->value;
  }
  // What the live run dropped, another cache may never have held.
  setup.as_recorded = unit == head.recorded() && cache == head.cache;
  return setup;
}

/// A cache that has seen the whole of a file.
struct Replayed {
  std::unique_ptr<tuning::RecordedFuture> future;  ///< of the replay; null where it needs none
  tuning::CacheReplay replay;
  tuning::TraceEnd end;
};

/// Errors: invalid_argument where it does not fit in memory.
Result<std::unique_ptr<tuning::RecordedFuture>> read_future(const std::string& file,
                                                            const TraceHead& head,
                                                            const tuning::ReplaySetup& setup,
                                                            Progress& progress) {
  auto future = std::make_unique<tuning::RecordedFuture>(tuning::future_selections_max);
  TERRACE_ASSIGN(auto cutter, tuning::TrafficCutter::create(head, setup.unit()));
  TERRACE_TRY(each_record(file, progress, "read",
                          [&](const auto& record) { future->add(record, cutter.cut(record)); }));
  if (future->complete()) return future;
  return fail(Errc::invalid_argument,
              "{}: cache.policy {} holds all that is selected, and this is more than {} units; "
              "replay another policy, or a shorter trace",
              file, setup.cache.policy, tuning::future_selections_max);
}

Result<Replayed> replay_file(const std::string& file, const TraceHead& head,
                             tuning::ReplaySetup setup, Progress& progress) {
  std::unique_ptr<tuning::RecordedFuture> future;
  if (policies::needs_foresight(setup.cache.policy)) {
    TERRACE_ASSIGN(future, read_future(file, head, setup, progress));
    setup.future = future.get();
  }
  TERRACE_ASSIGN(auto cutter, tuning::TrafficCutter::create(head, setup.unit()));
  TERRACE_ASSIGN(auto replay, tuning::CacheReplay::create(head, setup));
  TERRACE_ASSIGN(auto end, each_record(file, progress, "replay", [&](const auto& record) {
                   replay.apply(record, cutter.cut(record));
                 }));
  return Replayed{std::move(future), std::move(replay), std::move(end)};
}

/// Says that a cache whose size nobody gave has no slot either.
void warn_of_no_slot(const tuning::ReplaySetup& setup, const tuning::CacheReplay& replay,
                     const TraceHead& head, bool quiet) {
  if (quiet || setup.cache.none() || replay.slots() > 0) return;
  if (head.selected_tokens == 0) {  // imported
    fmt::print(stderr,
               "terrace: warning: the trace says nothing of a cache's size, and none is given: no "
               "cache; give --cache-tokens, at least {}\n",
               replay.slot_tokens());
    return;
  }
  fmt::print(
      stderr,
      "terrace: warning: the cache's size where none is given, twice the {} tokens that a step "
      "selects, holds no {} of {} tokens: no cache; give --cache-tokens\n",
      head.selected_tokens,
      setup.cache.granularity == CacheGranularity::cluster ? "slot of clusters" : "block",
      replay.slot_tokens());
}

Result<int> replay(const TraceOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  const TraceHead& head = reader.head();
  TERRACE_TRY(check_model(head, options.model));
  TERRACE_ASSIGN(const tuning::ReplaySetup setup, replay_setup(config, head));
  Progress progress(options.shared.quiet);
  TERRACE_ASSIGN(const Replayed replayed, replay_file(options.file, head, setup, progress));
  tuning::ReplayOutcome outcome = replayed.replay.outcome();
  if (replayed.end.run) {
    // What the prompt moved is no step's.
    outcome.bytes.offload = replayed.end.run->bytes.offload;
  }
  const bool told = warn_of_no_cache(
      setup.cache,
      {.slot_tokens = replayed.replay.slot_tokens(), .selected_tokens = head.selected_tokens},
      options.shared.quiet);
  if (!told) warn_of_no_slot(setup, replayed.replay, head, options.shared.quiet);
  const std::size_t capacity = replayed.replay.slots() * replayed.replay.slot_tokens();
  std::optional<CacheFigures> cache;
  if (capacity > 0) {
    cache = cache_figures(setup.cache.policy, std::string(to_string(setup.cache.granularity)),
                          capacity, outcome.cache);
  }
  if (options.shared.json()) {
    Json document = document_head("trace replay", config, read_machine());
    document["cache"] = cache_object(cache);
    document["bytes"] = bytes_object(outcome.bytes);
    print_document(document);
  } else {
    fmt::print("cache {}\nbytes {}\n", cache_object(cache).dump(2),
               bytes_object(outcome.bytes).dump(2));
  }
  return 0;
}

tuning::Conversion conversion(const TraceOptions& options, Progress& progress) {
  return {.source = options.file, .target = options.target, .progress = [&](double share) {
            progress.show(options.file, "convert", share);
          }};
}

/// Requests say which prefixes they share, a model says what these weigh.
Status import_requests(const TraceOptions& options, Progress& progress) {
  const tuning::Conversion files = conversion(options, progress);
  if (options.model.empty()) {
    TERRACE_TRY(tuning::import_mooncake(files));
    progress.clear();
    if (!options.shared.quiet) {
      fmt::print(stderr,
                 "terrace: warning: bytes and times of this trace are those of no model, for none "
                 "is named: give --model DIR\n");
    }
    return {};
  }
  TERRACE_ASSIGN(const auto config, engine::read_model_config(options.model));
  TERRACE_ASSIGN(std::string fingerprint, tuning::model_fingerprint(options.model));
  const tuning::ImportedModel model{
      .name = std::filesystem::path(options.model).filename().string(),
      .fingerprint = std::move(fingerprint),
      .shape = config.kv_shape(Dtype::f16),
      .weight_bytes = 2 * engine::parameter_count(config)};
  return tuning::import_mooncake(files, model);
}

/// Requests become a trace, whose blocks are theirs: nothing else may be asked for.
Status check_import(const TraceOptions& options, const Config& config) {
  if (options.to == "csv") {
    return fail(Errc::invalid_argument,
                "--to csv takes no --from mooncake; import the requests, then convert that trace");
  }
  for (const KeyFlag& key : convert_flags) {
    if (config.source(key.key).origin != ConfigOrigin::flag) continue;
    return fail(Errc::invalid_argument,
                "{} ({}) takes no --from mooncake: its blocks are cut already", key.flag, key.key);
  }
  return {};
}

Status write_converted(const TraceOptions& options, const Config& config) {
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  sources.push_back({"FILE", options.file});
  for (const NamedFile& file : model_sources(options.model)) sources.push_back(file);
  TERRACE_TRY(check_targets({{"OUT", options.target}}, sources));
  Progress progress(options.shared.quiet);
  if (options.from == "mooncake") {
    TERRACE_TRY(check_import(options, config));
    return import_requests(options, progress);
  }
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  TERRACE_TRY(check_model(reader.head(), options.model));
  const tuning::CacheUnit unit = chosen_unit(config, reader.head());
  const tuning::Conversion files = conversion(options, progress);
  if (options.to == "csv") return tuning::convert_to_csv(files, unit);
  if (is_set(config, "cache.granularity") && unit.granularity == CacheGranularity::cluster) {
    return fail(Errc::invalid_argument,
                "cache.granularity cluster goes with --to csv: blocks are made of tokens");
  }
  return tuning::convert_to_blocks(files, unit.block_tokens);
}

Result<int> convert(const TraceOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_TRY(write_converted(options, config));
  if (options.shared.json()) {
    Json document = document_head("trace convert", config, read_machine());
    document["written"] = options.target;
    print_document(document);
  }
  return 0;
}

CLI::App* add_action(CLI::App& trace, const char* name, const char* meaning,
                     const std::shared_ptr<TraceOptions>& options,
                     Result<int> (*action)(const TraceOptions&), Invocation& invocation) {
  CLI::App* const command = trace.add_subcommand(name, meaning);
  command->add_option("FILE", options->file, "the trace")->required();
  command->callback([options, action, &invocation] {
    invocation = {[options, action] { return action(*options); }, options->shared.verbose};
  });
  add_shared_options(*command, options->shared);
  return command;
}

void add_model_option(CLI::App& command, TraceOptions& options,
                      const char* meaning = "refuse a trace that is not of this model") {
  command.add_option("--model", options.model, meaning)->option_text("DIR");
}

}  // namespace

void add_trace_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const trace = program.add_subcommand("trace", "look into, replay or convert a trace");
  trace->require_subcommand(0, 1);
  const auto for_info = std::make_shared<TraceOptions>();
  add_model_option(*add_action(*trace, "info", "check a trace and say what is in it", for_info,
                               &info, invocation),
                   *for_info);
  const auto for_replay = std::make_shared<TraceOptions>();
  CLI::App* const replays =
      add_action(*trace, "replay", "run a trace through a cache, the recorded run's or another",
                 for_replay, &replay, invocation);
  add_model_option(*replays, *for_replay);
  add_key_flags(*replays, replay_flags, for_replay->shared);
  const auto for_convert = std::make_shared<TraceOptions>();
  CLI::App* const converts = add_action(*trace, "convert", "write a trace in another form",
                                        for_convert, &convert, invocation);
  converts->add_option("OUT", for_convert->target, "the file to write")->required();
  converts->add_option("--from", for_convert->from, "form of FILE: terrace or mooncake")
      ->check(CLI::IsMember({"terrace", "mooncake"}));
  converts->add_option("--to", for_convert->to, "form of OUT: blocks or csv")
      ->check(CLI::IsMember({"blocks", "csv"}));
  add_model_option(*converts, *for_convert,
                   "of mooncake: the model whose prefixes they are; else as for the others");
  add_key_flags(*converts, convert_flags, for_convert->shared);
}

}  // namespace terrace::apps
