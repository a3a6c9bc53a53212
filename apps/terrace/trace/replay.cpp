// `terrace trace replay`.
#include "terrace/tuning/replay.hpp"

#include <cstdio>
#include <memory>

#include "document.hpp"
#include "output.hpp"
#include "run/report.hpp"
#include "run/table.hpp"
#include "terrace/core/bytes.hpp"
#include "trace/actions.hpp"

namespace terrace::apps {
namespace {

using tuning::TraceHead;

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
  return setup;
}

/// A cache that has seen the whole of a file.
struct Replayed {
  std::unique_ptr<tuning::RecordedFuture> future;  ///< of the replay; null if the policy needs none
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
  return fail(
      Errc::invalid_argument,
      "{}: cache.policy {} holds all selections, and the trace has more than {} units of them; "
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

/// Says of a trace that was imported that nothing gives its cache a size.
void warn_of_no_size(const tuning::ReplaySetup& setup, const tuning::CacheReplay& replay,
                     const TraceHead& head, bool quiet) {
  const bool has_size = replay.slots() > 0 || head.selected_tokens > 0;
  if (quiet || setup.cache.none() || has_size) return;
  warn(
      "the trace names no size of a cache, and none is given: no cache; give "
      "--cache-tokens, at least {}",
      replay.slot_tokens());
}

/// The cache and what it moved, for people.
void print_outcome(const std::optional<CacheFigures>& cache, const LinkBytes& bytes) {
  if (cache) {
    const CacheCounters& counters = cache->counters;
    print_out(
        "cache    {} of {}s, {} tokens a layer\n"
        "hits     {} of tokens, {} of units\n"
        "units    {} admitted, {} evicted, {} refused\n",
        cache->policy, cache->granularity, cache->capacity_tokens,
        decimals(cache->hit_rate_tokens, 4), decimals(cache->hit_rate_units, 4), counters.admitted,
        counters.evicted, counters.refused);
  } else {
    print_out("cache    none\n");
  }
  print_out("moved    {} on demand, {} refilled, {} to select, {} offloaded\n",
            format_size(bytes.demand), format_size(bytes.refill), format_size(bytes.index),
            format_size(bytes.offload));
}

}  // namespace

Result<int> trace_replay(const TraceOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  const TraceHead& head = reader.head();
  TERRACE_TRY(check_trace_model(options, head));
  TERRACE_ASSIGN(const tuning::ReplaySetup setup, replay_setup(config, head));
  Progress progress(options.shared.quiet);
  TERRACE_ASSIGN(const Replayed replayed, replay_file(options.file, head, setup, progress));
  tuning::ReplayOutcome outcome = replayed.replay.outcome();
  if (replayed.end.run) {
    // The bytes that the prompt moved belong to no step.
    outcome.bytes.offload = replayed.end.run->bytes.offload;
  }
  const bool told = warn_of_no_cache(
      setup.cache,
      {.slot_tokens = replayed.replay.slot_tokens(), .selected_tokens = head.selected_tokens},
      options.shared.quiet);
  if (!told) warn_of_no_size(setup, replayed.replay, head, options.shared.quiet);
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
    document["approximate"] = replayed.end.losses > 0;
    print_document(document);
  } else {
    print_outcome(cache, outcome.bytes);
    print_losses(replayed.end);
  }
  return 0;
}

}  // namespace terrace::apps
