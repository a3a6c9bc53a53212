// `terrace trace info`.

#include "document.hpp"
#include "output.hpp"
#include "trace/actions.hpp"

namespace terrace::apps {
namespace {

Json head_object(const tuning::TraceHead& head) {
  Json granularities = Json::array();
  for (const auto granularity :
       {CacheGranularity::block, CacheGranularity::cluster, CacheGranularity::row}) {
    if (!head.serves({granularity, head.block_tokens})) continue;
    granularities.push_back(to_string(granularity));
  }
  // Clusters that no policy made, as imported prefixes, count as blocks when a cache is configured.
  const auto unit = head.unit == tuning::TraceUnit::cluster ? tuning::TraceUnit::block : head.unit;
  return {{"unit", to_string(unit)},
          {"granularities", granularities},
          {"cache_granularity", to_string(head.cache.granularity)},
          {"source", head.source},
          {"step", head.step_name()},
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

}  // namespace

Result<int> trace_info(const TraceOptions& options) {
  TERRACE_ASSIGN(const Config config, resolve_config(options.shared));
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.file));
  TERRACE_TRY(check_trace_model(options, reader.head()));
  Progress progress(options.shared.quiet);
  TERRACE_ASSIGN(const tuning::TraceEnd end,
                 each_record(options.file, progress, "check", [](const auto&) {}));
  const std::uint64_t layers = reader.head().layers_per_record();
  const Json counts{{"steps", end.steps},
                    {"layer_steps", layers * end.layer_steps},
                    {"selections", layers * end.selections},
                    {"rows", layers * end.rows},
                    {"sequences", end.sequences},
                    {"last_position", end.last_position},
                    {"losses", end.losses}};
  if (options.shared.json()) {
    Json document = document_head("trace info", config, read_machine());
    document["trace"] = head_object(reader.head());
    document["counts"] = counts;
    document["approximate"] = end.losses > 0;
    print_document(document);
    return 0;
  }
  const Json head = head_object(reader.head());
  for (const Json* const part : {&head, &counts}) {
    for (const auto& [name, value] : part->items()) {
      print_out("{:<18} {}\n", name,
                value.is_string() ? shown(value.get<std::string>()) : value.dump());
    }
  }
  print_losses(end);
  return 0;
}

}  // namespace terrace::apps
