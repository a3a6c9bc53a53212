// The head and the end of a trace: JSON, so that people can read them in the file.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "terrace/core/config.hpp"
#include "terrace/core/json_text.hpp"
#include "trace_codec.hpp"

namespace terrace::tuning {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> unit_names{"token", "block", "cluster"};

// Groups of keys that the tuner searches, and groups that say how fast a machine is but not what it
// computes.
constexpr std::array<std::string_view, 9> groups_left_out{
    "cache", "backend", "device", "host", "threads", "isa", "link", "deadline", "profile"};

// Far beyond any model and any run, and so low that no product of theirs wraps.
constexpr std::uint64_t layers_max = 1U << 12;
constexpr std::uint64_t heads_max = 1U << 12;
constexpr std::uint64_t tokens_max = std::uint64_t{1} << 32;
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 62;

/// Reads a count: nlohmann-json would take a negative one for a huge one.
template <typename Count>
void read_count(const Json& json, const std::string& name, Count& count,
                std::uint64_t most = bytes_max) {
  const Json& value = json.at(name);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    throw std::out_of_range(fmt::format("{} is no whole number from 0 to {}", name, most));
  }
  count = static_cast<Count>(value.get<std::uint64_t>());
}

/// Reads seconds, which are never negative.
void read_seconds(const Json& json, const std::string& name, double& seconds) {
  json.at(name).get_to(seconds);
  if (!(seconds >= 0)) throw std::out_of_range(name + " is negative");
}

Json cache_json(const CacheOptions& cache) {
  Json json{{"policy", cache.policy},
            {"admission", cache.admission},
            {"granularity", to_string(cache.granularity)},
            {"tokens", cache.tokens},
            {"sequence_tokens", cache.sequence_tokens},
            {"horizon", cache.refill.horizon_steps}};
  if (const auto setting = policies::replacement_setting(cache.policy)) {
    json[std::string(setting->name())] = cache.replacement.*setting->value;
  }
  return json;
}

CacheOptions cache_from(const Json& json) {
  CacheOptions cache;
  json.at("policy").get_to(cache.policy);
  json.at("admission").get_to(cache.admission);
  const auto granularity = find_cache_granularity(json.at("granularity").get<std::string>());
  cache.granularity = granularity.value_or(CacheGranularity::block);
  read_count(json, "tokens", cache.tokens, tokens_max);
  read_count(json, "sequence_tokens", cache.sequence_tokens, tokens_max);
  if (const auto setting = policies::replacement_setting(cache.policy)) {
    read_count(json, std::string(setting->name()), cache.replacement.*setting->value);
  }
  json.at("horizon").get_to(cache.refill.horizon_steps);
  return cache;
}

Json shape_json(const KvShape& shape) {
  return {{"layers", shape.layers},
          {"query_heads", shape.query_heads},
          {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"dtype", to_string(shape.dtype)}};
}

Json run_json(const RecordedRun& run) {
  return {{"cache",
           {{"rows_hit", run.cache.rows_hit},
            {"rows_missed", run.cache.rows_missed},
            {"rows_resident", run.cache.rows_resident},
            {"blocks_hit", run.cache.blocks_hit},
            {"blocks_missed", run.cache.blocks_missed},
            {"admitted", run.cache.admitted},
            {"adopted", run.cache.adopted},
            {"evicted", run.cache.evicted},
            {"refused", run.cache.refused}}},
          {"bytes",
           {{"offload", run.bytes.offload},
            {"demand", run.bytes.demand},
            {"refill", run.bytes.refill},
            {"index", run.bytes.index}}},
          {"decode_seconds", run.decode_seconds},
          {"link_seconds", run.link_seconds},
          {"select_seconds", run.select_seconds},
          {"upkeep_seconds", run.upkeep_seconds},
          {"fixed_device_bytes", run.fixed_device_bytes},
          {"machine", run.machine}};
}

RecordedRun run_from(const Json& json) {
  RecordedRun run;
  const Json& cache = json.at("cache");
  read_count(cache, "rows_hit", run.cache.rows_hit);
  read_count(cache, "rows_missed", run.cache.rows_missed);
  read_count(cache, "rows_resident", run.cache.rows_resident);
  read_count(cache, "blocks_hit", run.cache.blocks_hit);
  read_count(cache, "blocks_missed", run.cache.blocks_missed);
  read_count(cache, "admitted", run.cache.admitted);
  read_count(cache, "adopted", run.cache.adopted);
  read_count(cache, "evicted", run.cache.evicted);
  read_count(cache, "refused", run.cache.refused);
  const Json& bytes = json.at("bytes");
  read_count(bytes, "offload", run.bytes.offload);
  read_count(bytes, "demand", run.bytes.demand);
  read_count(bytes, "refill", run.bytes.refill);
  read_count(bytes, "index", run.bytes.index);
  read_seconds(json, "decode_seconds", run.decode_seconds);
  read_seconds(json, "link_seconds", run.link_seconds);
  read_seconds(json, "select_seconds", run.select_seconds);
  read_seconds(json, "upkeep_seconds", run.upkeep_seconds);
  read_count(json, "fixed_device_bytes", run.fixed_device_bytes);
  json.at("machine").get_to(run.machine);
  return run;
}

TraceHead head_from(const Json& json) {
  TraceHead head;
  const auto unit = json.at("unit").get<std::string>();
  const auto* const name = std::ranges::find(unit_names, unit);
  if (name == unit_names.end()) throw std::out_of_range("unit");
  head.unit = static_cast<TraceUnit>(name - unit_names.begin());
  json.at("source").get_to(head.source);
  json.at("model").get_to(head.model);
  json.at("model_fingerprint").get_to(head.model_fingerprint);
  read_count(json, "weight_bytes", head.weight_bytes);
  json.at("policy").get_to(head.policy);
  json.at("budget").get_to(head.budget);
  const Json& shape = json.at("shape");
  read_count(shape, "layers", head.shape.layers, layers_max);
  read_count(shape, "query_heads", head.shape.query_heads, heads_max);
  read_count(shape, "kv_heads", head.shape.kv_heads, heads_max);
  read_count(shape, "head_dim", head.shape.head_dim, heads_max);
  const auto dtype = parse_dtype(shape.at("dtype").get<std::string>());
  if (!dtype) throw std::out_of_range("dtype");
  head.shape.dtype = *dtype;
  // Format 6 has neither.
  head.layers_alike = json.value("layers_alike", false);
  head.prefixes = json.value("prefixes", head.source == "mooncake");
  head.arrivals = json.value("arrivals", false);
  head.placement = json.at("placement").get<std::string>() == "offload" ? Placement::offload
                                                                        : Placement::resident_first;
  read_count(json, "block_tokens", head.block_tokens, tokens_max);
  read_count(json, "slot_rows", head.slot_rows, tokens_max);
  read_count(json, "staged_rows", head.staged_rows, tokens_max);
  read_count(json, "sink_tokens", head.sink_tokens, tokens_max);
  read_count(json, "window_tokens", head.window_tokens, tokens_max);
  read_count(json, "selected_tokens", head.selected_tokens, tokens_max);
  read_count(json, "context_tokens", head.context_tokens, tokens_max);
  head.cache = cache_from(json.at("cache"));
  json.at("settings").get_to(head.settings);
  read_count(json, "seed", head.seed, UINT64_MAX);
  return head;
}

TraceEnd end_from(const Json& json) {
  TraceEnd end;
  read_count(json, "layer_steps", end.layer_steps);
  read_count(json, "steps", end.steps);
  read_count(json, "selections", end.selections);
  read_count(json, "rows", end.rows);
  read_count(json, "last_position", end.last_position);
  read_count(json, "sequences", end.sequences);
  read_count(json, "losses", end.losses);
  if (!json.at("run").is_null()) end.run = run_from(json.at("run"));
  return end;
}

/// Checks that clusters have slots, that blocks have no slots, and that a run that cached clusters
/// has some.
Status check_slots(const TraceHead& head) {
  constexpr std::size_t staged_rows_max = std::size_t{1} << 31;  // positions are 32-bit
  if (head.staged_rows > staged_rows_max) {
    return fail(Errc::invalid_argument, "staged_rows {}: no step stages as many", head.staged_rows);
  }
  const bool too_large = head.slot_rows / head.block_tokens > head.shape.kv_heads;
  if (too_large || (head.unit == TraceUnit::cluster && !head.has_clusters())) {
    return fail(Errc::invalid_argument, "slot_rows {}: slots are cut from blocks", head.slot_rows);
  }
  if (head.unit == TraceUnit::block && head.has_clusters()) {
    return fail(Errc::invalid_argument, "slot_rows {}: blocks are no clusters", head.slot_rows);
  }
  if (head.cache.granularity == CacheGranularity::cluster && !head.has_clusters()) {
    return fail(Errc::invalid_argument, "a cache of clusters, and slot_rows 0");
  }
  return {};
}

/// A tuned config takes all settings of a head.
Status check_recorded_keys(const TraceHead& head, Config& config, const ConfigSource& source) {
  for (const auto& [key, text] : head.settings) {
    if (!is_recorded_key(key)) {
      return fail(Errc::invalid_argument, "settings: '{}' is no key that a trace has", shown(key));
    }
    TERRACE_TRY(config.set(key, text, source));
  }
  return {};
}

/// A config must allow the settings that a tuned config takes from a head; slots must be possible.
Status check_settings(const TraceHead& head) {
  Config config;
  const ConfigSource source{ConfigOrigin::file, "trace"};
  TERRACE_TRY(config.set("kv.block_tokens", std::to_string(head.block_tokens), source));
  TERRACE_TRY(check_recorded_keys(head, config, source));
  TERRACE_TRY(check_slots(head));
  if (head.policy.empty()) return {};  // no run was recorded
  if (head.layers_alike) {
    return fail(Errc::invalid_argument, "layers_alike: layers of a run select by themselves");
  }
  TERRACE_TRY(config.set("retrieval.policy", head.policy, source));
  return config.set("retrieval.budget", head.budget, source);
}

/// nlohmann-json reports by exceptions, which this file catches.
template <typename Value, typename Read>
Result<Value> parse(const std::string& text, const char* chunk, Read read) {
  if (const std::string_view flaw = flaw_of_json_text(text); !flaw.empty()) {
    return fail(Errc::corrupt, "the {} of the trace is no JSON: {}", chunk, flaw);
  }
  try {
    return read(Json::parse(text));
  } catch (const std::exception& error) {
    return fail(Errc::corrupt, "the {} of the trace is not right: {}", chunk, error.what());
  }
}

}  // namespace

bool is_recorded_key(std::string_view key) noexcept {
  const std::string_view group = key.substr(0, key.find('.'));
  const ConfigKey* const known = find_config_key(key);
  return known != nullptr && !known->has_password &&
         std::ranges::find(groups_left_out, group) == groups_left_out.end();
}

std::string_view to_string(TraceUnit unit) noexcept {
  return unit_names[static_cast<std::size_t>(unit)];
}

std::string encode_head(const TraceHead& head) {
  return Json{{"unit", to_string(head.unit)},
              {"source", head.source},
              {"model", head.model},
              {"model_fingerprint", head.model_fingerprint},
              {"weight_bytes", head.weight_bytes},
              {"policy", head.policy},
              {"budget", head.budget},
              {"shape", shape_json(head.shape)},
              {"layers_alike", head.layers_alike},
              {"prefixes", head.prefixes},
              {"arrivals", head.arrivals},
              {"placement", head.placement == Placement::offload ? "offload" : "resident_first"},
              {"block_tokens", head.block_tokens},
              {"slot_rows", head.slot_rows},
              {"staged_rows", head.staged_rows},
              {"sink_tokens", head.sink_tokens},
              {"window_tokens", head.window_tokens},
              {"selected_tokens", head.selected_tokens},
              {"context_tokens", head.context_tokens},
              {"cache", cache_json(head.cache)},
              {"settings", head.settings},
              {"seed", head.seed}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string encode_end(const TraceEnd& end) {
  return Json{{"layer_steps", end.layer_steps},
              {"steps", end.steps},
              {"selections", end.selections},
              {"rows", end.rows},
              {"last_position", end.last_position},
              {"sequences", end.sequences},
              {"losses", end.losses},
              {"run", end.run ? run_json(*end.run) : Json(nullptr)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<TraceHead> decode_head(const std::string& json) {
  TERRACE_ASSIGN(TraceHead head, parse<TraceHead>(json, "head", head_from));
  const Status right = head.shape.validate().and_then([&] { return check_settings(head); });
  if (!right) {
    return fail(Errc::corrupt, "the head of the trace is not right: {}", right.error().message());
  }
  return head;
}

Result<TraceEnd> decode_end(const std::string& json) {
  return parse<TraceEnd>(json, "end", end_from);
}

}  // namespace terrace::tuning
