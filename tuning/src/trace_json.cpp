// The head and the end of a trace: JSON, so that people can read them in the file.
#include <array>
#include <nlohmann/json.hpp>

#include "terrace/core/config.hpp"
#include "trace_codec.hpp"

namespace terrace::tuning {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> unit_names{"token", "block", "cluster"};

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
  cache.granularity = json.at("granularity").get<std::string>() == "cluster"
                          ? CacheGranularity::cluster
                          : CacheGranularity::block;
  json.at("tokens").get_to(cache.tokens);
  json.at("sequence_tokens").get_to(cache.sequence_tokens);
  if (const auto setting = policies::replacement_setting(cache.policy)) {
    json.at(std::string(setting->name())).get_to(cache.replacement.*setting->value);
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
  cache.at("rows_hit").get_to(run.cache.rows_hit);
  cache.at("rows_missed").get_to(run.cache.rows_missed);
  cache.at("rows_resident").get_to(run.cache.rows_resident);
  cache.at("blocks_hit").get_to(run.cache.blocks_hit);
  cache.at("blocks_missed").get_to(run.cache.blocks_missed);
  cache.at("admitted").get_to(run.cache.admitted);
  cache.at("adopted").get_to(run.cache.adopted);
  cache.at("evicted").get_to(run.cache.evicted);
  cache.at("refused").get_to(run.cache.refused);
  const Json& bytes = json.at("bytes");
  bytes.at("offload").get_to(run.bytes.offload);
  bytes.at("demand").get_to(run.bytes.demand);
  bytes.at("refill").get_to(run.bytes.refill);
  bytes.at("index").get_to(run.bytes.index);
  json.at("decode_seconds").get_to(run.decode_seconds);
  json.at("link_seconds").get_to(run.link_seconds);
  json.at("select_seconds").get_to(run.select_seconds);
  json.at("upkeep_seconds").get_to(run.upkeep_seconds);
  json.at("fixed_device_bytes").get_to(run.fixed_device_bytes);
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
  json.at("weight_bytes").get_to(head.weight_bytes);
  json.at("policy").get_to(head.policy);
  json.at("budget").get_to(head.budget);
  const Json& shape = json.at("shape");
  shape.at("layers").get_to(head.shape.layers);
  shape.at("query_heads").get_to(head.shape.query_heads);
  shape.at("kv_heads").get_to(head.shape.kv_heads);
  shape.at("head_dim").get_to(head.shape.head_dim);
  const auto dtype = parse_dtype(shape.at("dtype").get<std::string>());
  if (!dtype) throw std::out_of_range("dtype");
  head.shape.dtype = *dtype;
  head.placement = json.at("placement").get<std::string>() == "offload" ? Placement::offload
                                                                        : Placement::resident_first;
  json.at("block_tokens").get_to(head.block_tokens);
  json.at("slot_rows").get_to(head.slot_rows);
  json.at("staged_rows").get_to(head.staged_rows);
  json.at("sink_tokens").get_to(head.sink_tokens);
  json.at("window_tokens").get_to(head.window_tokens);
  json.at("selected_tokens").get_to(head.selected_tokens);
  json.at("context_tokens").get_to(head.context_tokens);
  head.cache = cache_from(json.at("cache"));
  json.at("settings").get_to(head.settings);
  json.at("seed").get_to(head.seed);
  return head;
}

TraceEnd end_from(const Json& json) {
  TraceEnd end;
  json.at("layer_steps").get_to(end.layer_steps);
  json.at("steps").get_to(end.steps);
  json.at("selections").get_to(end.selections);
  json.at("rows").get_to(end.rows);
  json.at("last_position").get_to(end.last_position);
  json.at("sequences").get_to(end.sequences);
  if (!json.at("run").is_null()) end.run = run_from(json.at("run"));
  return end;
}

/// Clusters need slots, blocks have none, and a run that cached clusters has some.
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

/// What a tuned config takes from a head must be what a config may say; slots must be possible.
Status check_settings(const TraceHead& head) {
  Config config;
  const ConfigSource source{ConfigOrigin::file, "trace"};
  TERRACE_TRY(config.set("kv.block_tokens", std::to_string(head.block_tokens), source));
  TERRACE_TRY(check_slots(head));
  if (head.policy.empty()) return {};  // no run was recorded
  TERRACE_TRY(config.set("retrieval.policy", head.policy, source));
  return config.set("retrieval.budget", head.budget, source);
}

/// nlohmann-json reports by exceptions; none leaves this file.
template <typename Value, typename Read>
Result<Value> parse(const std::string& text, const char* chunk, Read read) {
  try {
    return read(Json::parse(text));
  } catch (const std::exception& error) {
    return fail(Errc::corrupt, "the {} of the trace is not right: {}", chunk, error.what());
  }
}

}  // namespace

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
