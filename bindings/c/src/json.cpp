#include "json.hpp"

#include <limits>
#include <nlohmann/json.hpp>

namespace terrace::bindings {
namespace {

using Json = nlohmann::ordered_json;

// Settings come from callers, and their text may be invalid UTF-8.
std::string written(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json needs_of(const RetrievalTraits& traits, const RetentionTraits* retention) {
  const bool rates = retention != nullptr && retention->needs_pre_rope_keys;
  return {{"query_window_tokens", traits.query_window_tokens},
          {"pre_rope_keys", traits.needs_pre_rope_keys || rates},
          {"attention_scores", traits.needs_attention_scores},
          {"speculated_query", traits.needs_speculated_query}};
}

Json bytes_of(const LinkBytes& bytes) {
  return {{"offload", bytes.offload},
          {"demand", bytes.demand},
          {"refill", bytes.refill},
          {"streamed", bytes.streamed},
          {"index", bytes.index}};
}

Json cache_of(const CacheCounters& cache, std::size_t capacity_tokens) {
  return {{"capacity_tokens", capacity_tokens}, {"rows_hit", cache.rows_hit},
          {"rows_missed", cache.rows_missed},   {"rows_resident", cache.rows_resident},
          {"units_hit", cache.blocks_hit},      {"units_missed", cache.blocks_missed},
          {"admitted", cache.admitted},         {"adopted", cache.adopted},
          {"evicted", cache.evicted},           {"refused", cache.refused}};
}

Json waits_of(const SequenceCounters& counters) {
  Json waits = Json::object();
  for (std::size_t i = 0; i < wait_reasons; ++i) {
    waits[std::string(to_string(static_cast<WaitReason>(i)))] = seconds(counters.waits.at(i));
  }
  return waits;
}

Json retention_of(const RetentionReport& report) {
  return {{"flushes", report.flushes}, {"dropped", report.dropped},
          {"kept", report.kept},       {"merged", report.merged},
          {"lists", report.lists},     {"seconds", seconds(report.busy)}};
}

/// The bytes of device memory that may be used, or null where nothing limits them.
Json granted(Backend& backend) {
  const std::size_t limit = backend.memory(Tier::device).limit;
  return limit == std::numeric_limits<std::size_t>::max() ? Json(nullptr) : Json(limit);
}

}  // namespace

std::string keys_as_json(const Config& config) {
  Json keys = Json::array();
  for (const ConfigKey& key : config_keys()) {
    const ConfigSource& source = config.source(key.name);
    keys.push_back({{"name", key.name},
                    {"value", config.visible_text(key.name)},
                    {"origin", to_string(source.origin)},
                    {"place", source.place},
                    {"default", key.default_text},
                    {"accepts", describe_accepted(key)},
                    {"meaning", key.meaning}});
  }
  return written(keys);
}

std::string traits_as_json(Runtime& runtime, const offload::BackendChoice& backend) {
  const RetrievalTraits& traits = runtime.traits();
  const RetentionTraits* const retention = runtime.retention_traits();
  Json json{
      {"backend", {{"name", backend.name}, {"reason", backend.reason}, {"device", backend.device}}},
      {"retrieval", traits.name},
      {"selects", traits.selects},
      {"keeps_everything", traits.keeps_everything},
      {"lists", traits.lists == ListScope::query_head ? "query_head" : "kv_head"},
      {"gives_logit_bias", traits.gives_logit_bias},
      {"gives_pseudo_entries", traits.gives_pseudo_entries},
      {"needs", needs_of(traits, retention)},
      {"device_memory", granted(runtime.backend())},
      {"offloads", runtime.options().placement == Placement::offload}};
  json["retention"] = retention == nullptr ? Json(nullptr) : Json(retention->name);
  return written(json);
}

std::string counters_as_json(const Sequence& sequence) {
  const SequenceCounters counters = sequence.counters();
  return written({{"length", sequence.length()},
                  {"budget_tokens", sequence.budget_tokens()},
                  {"selected_tokens", sequence.selected_tokens()},
                  {"steps", counters.steps},
                  {"prompt_steps", counters.prompt_steps},
                  {"exact_steps", counters.exact_steps},
                  {"builds", counters.builds},
                  {"refreshes", counters.refreshes},
                  {"attended", counters.attended},
                  {"pseudo_entries", counters.pseudo_entries},
                  {"lists", counters.lists},
                  {"attention_mass", counters.attention_mass},
                  {"mass_samples", counters.mass_samples},
                  {"bytes", bytes_of(counters.bytes)},
                  {"cache", cache_of(counters.cache, sequence.cache_capacity_tokens())},
                  {"waits", waits_of(counters)},
                  {"upkeep_seconds", seconds(counters.upkeep)},
                  {"upkeep_waited_seconds", seconds(counters.upkeep_waited)},
                  {"retention", retention_of(sequence.retention())}});
}

}  // namespace terrace::bindings
