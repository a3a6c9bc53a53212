// The command line of `terrace trace`, and what its actions share.
#include <fmt/core.h>

#include <CLI/Error.hpp>
#include <memory>

#include "output.hpp"
#include "trace/actions.hpp"

namespace terrace::apps {
namespace {

constexpr std::array replay_flags{
    KeyFlag{"--cache", "cache.policy", "another replacement policy than the trace's, or none"},
    KeyFlag{"--cache-tokens", "cache.tokens", "another capacity in tokens per layer"},
    KeyFlag{"--cache-granularity", "cache.granularity", "another unit that is cached"},
    block_tokens_flag,
};

void add_object_options(CLI::App& command, tuning::ObjectOptions& objects) {
  const auto add_column = [&command](const char* flag, std::size_t& column, const char* meaning) {
    command.add_option(flag, column, meaning)
        ->check(CLI::Range(std::size_t{1}, std::size_t{1000}))
        ->option_text("N");
  };
  add_column("--obj-id-col", objects.id_column, "of csv: the column of ids, from 1 [2]");
  add_column("--obj-size-col", objects.size_column, "of csv: the column of sizes, from 1 [3]");
  command.add_flag("--ignore-obj-size", objects.ignore_sizes,
                   "of csv and oraclegeneral: each object is one row");
}

constexpr const char* forms = R"(Forms:
  terrace                   a trace, as terrace run --trace records it
  mooncake                  JSON lines with input_length and hash_ids, one id for each block
  csv, from                 libCacheSim's: time, obj_id and obj_size, or columns that are named
  oraclegeneral             libCacheSim's binary form, unpacked
  blocks                    a trace of blocks of one size, for terrace
  csv, to                   key,sequence,layer,step,unit,rows,slots; keys name units among those of
                            all layers: cachesim OUT csv lru 1000 -t "time-col=4, obj-id-col=1,
                            obj-size-col=7"
An object of csv or oraclegeneral is a unit of as many rows as its size says, and --cache-tokens of
a replay counts rows.
)";

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

/// Says what to name instead, where a policy is asked for as terrace run takes it.
void refuse_policy(CLI::App& replay) {
  const auto refuse = [](const std::string&) {
    throw CLI::ValidationError("--policy",
                               "the trace has the retrieval policy of its run; name a replacement "
                               "policy by --cache");
  };
  replay.add_option_function<std::string>("--policy", refuse)->group("");  // not in --help
}

void add_model_option(CLI::App& command, TraceOptions& options,
                      const char* meaning = "refuse a trace that is not of this model") {
  command.add_option("--model", options.model, meaning)->option_text("DIR");
}

}  // namespace

Status check_trace_model(const TraceOptions& options, const tuning::TraceHead& head) {
  return options.model.empty() ? Status{} : tuning::check_model(head, options.model);
}

tuning::CacheUnit chosen_unit(const Config& config, const tuning::TraceHead& head) {
  tuning::CacheUnit unit = head.recorded();
  if (is_set(config, "kv.block_tokens")) unit.block_tokens = config.integer("kv.block_tokens");
  const std::string& policy = config.text("cache.policy");
  if (is_set(config, "cache.granularity")) {
    unit.granularity = find_cache_granularity(config.text("cache.granularity"))
                           .value_or(usual_granularity(policy));
  } else if (is_set(config, "cache.policy") && unit.granularity != CacheGranularity::cluster &&
             head.unit == tuning::TraceUnit::token) {
    unit.granularity = usual_granularity(policy);
  }
  return unit;
}

void print_losses(const tuning::TraceEnd& end) {
  if (end.losses == 0) return;
  print_out(
      "approximate: the run abandoned steps, or its cache lost units for lack of device memory, {} "
      "times; a replay does not follow that\n",
      end.losses);
}

void add_trace_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const trace = program.add_subcommand("trace", "look into, replay or convert a trace");
  trace->require_subcommand(0, 1);
  const auto for_info = std::make_shared<TraceOptions>();
  add_model_option(*add_action(*trace, "info", "check a trace and say what is in it", for_info,
                               &trace_info, invocation),
                   *for_info);
  const auto for_replay = std::make_shared<TraceOptions>();
  CLI::App* const replays =
      add_action(*trace, "replay", "run a trace through a cache, the recorded run's or another",
                 for_replay, &trace_replay, invocation);
  add_model_option(*replays, *for_replay);
  add_key_flags(*replays, replay_flags, for_replay->shared);
  refuse_policy(*replays);
  const auto for_convert = std::make_shared<TraceOptions>();
  CLI::App* const converts = add_action(*trace, "convert", "write a trace in another form",
                                        for_convert, &trace_convert, invocation);
  converts->get_option("FILE")->description(
      "the trace, or requests; - is standard input, of these");
  converts->add_option("OUT", for_convert->target, "the file to write")->required();
  converts
      ->add_option("--from", for_convert->from,
                   "form of FILE: terrace, or requests as mooncake, csv or oraclegeneral")
      ->check(CLI::IsMember({"terrace", "mooncake", "csv", "oraclegeneral"}));
  converts->add_option("--to", for_convert->to, "form of OUT: blocks or csv [by its name]")
      ->check(CLI::IsMember({"blocks", "csv"}));
  add_model_option(*converts, *for_convert,
                   "of mooncake: the model of the prefixes; otherwise as for the other commands");
  add_key_flags(*converts, convert_flags, for_convert->shared);
  add_object_options(*converts, for_convert->objects);
  converts->footer(forms);
}

}  // namespace terrace::apps
