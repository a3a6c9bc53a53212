#include "run/report.hpp"

#include <fmt/core.h>

#include <optional>

#include "profile_report.hpp"

namespace terrace::apps {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json delta_object(const std::optional<MeanWithError>& delta) {
  if (!delta) return {{"mean", nullptr}, {"standard_error", nullptr}};
  return {{"mean", delta->mean}, {"standard_error", or_null(delta->standard_error)}};
}

Json needles_object(const PolicyFigures& figures) {
  const std::vector<NeedleScore>& scores = figures.needles;
  if (scores.empty()) return nullptr;
  std::size_t digits = 0;
  std::size_t right = 0;
  Json by_depth = Json::array();
  for (const NeedleScore& score : scores) {
    digits += score.digits;
    right += score.right;
    by_depth.push_back({{"depth", score.depth}, {"digits", score.digits}, {"right", score.right}});
  }
  const std::string& form = figures.needles_form;
  return {{"asked", scores.size()},
          {"asked_at", to_string(figures.needles_asked)},
          {"form", form.empty() ? Json(nullptr) : Json(form)},
          {"digits_right_ratio", static_cast<double>(right) / static_cast<double>(digits)},
          {"by_depth", by_depth}};
}

/// LinkBytes and BytesPerToken name their parts alike.
template <typename Parts>
Json parts_object(const Parts& bytes) {
  return {{"offload", bytes.offload},
          {"demand", bytes.demand},
          {"refill", bytes.refill},
          {"index", bytes.index}};
}

Json seconds_object(const RunSeconds& seconds) {
  return {{"prefill", seconds.prefill},
          {"prefill_without_clustering", seconds.prefill_without_clustering},
          {"decode_per_token", seconds.decode_per_token},
          {"select", seconds.select},
          {"fetch", seconds.fetch},
          {"attend", seconds.attend},
          {"wait", seconds.wait},
          {"update", seconds.update},
          {"model", seconds.model}};
}

Json clustering_object(const PolicyFigures& figures) {
  return {{"iterations", figures.clustering.iterations},
          {"planned", figures.clustering.planned},
          {"costs", figures.planned_by ? costs_object(*figures.planned_by) : Json()},
          {"late_layers", figures.clustering.late_layers},
          {"hidden_ratio", or_null(figures.hidden_ratio)}};
}

Json nvme_object(const std::optional<StoreBytes>& nvme) {
  if (!nvme) return nullptr;
  return {{"bytes_read", nvme->read}, {"bytes_written", nvme->written}};
}

Json prefix_object(const PolicyFigures& figures) {
  if (!figures.restored && !figures.kept) return nullptr;
  Json object{{"restored", nullptr}, {"saved", nullptr}};
  if (const auto& restored = figures.restored) {
    object["restored"] = {{"tokens", restored->tokens}, {"bytes_read", restored->bytes_read}};
  }
  if (const auto& kept = figures.kept) {
    object["saved"] = {{"tokens", kept->tokens},
                       {"chunks", kept->chunks},
                       {"bytes", kept->bytes},
                       {"indexed", kept->indexed},
                       {"seconds", figures.seconds.keep}};
  }
  return object;
}

Json waits_object(std::span<const Duration> waits) {
  Json object = Json::object();
  for (std::size_t reason = 0; reason < waits.size(); ++reason) {
    object[std::string(to_string(static_cast<WaitReason>(reason)))] = seconds(waits[reason]);
  }
  return object;
}

Json retention_object(const std::optional<RetentionFigures>& retention) {
  if (!retention) return nullptr;
  return {{"policy", retention->policy},           {"kept_mean", retention->kept_mean},
          {"merged_mean", retention->merged_mean}, {"dropped", retention->dropped},
          {"flushes", retention->flushes},         {"flush_seconds", retention->flush_seconds}};
}

Json generated_object(const GeneratedTokens& generated, bool bytes) {
  Json ids = Json::array();
  for (const TokenId token : generated.tokens) ids.push_back(index(token));
  return {{"ids", ids},
          {"text", bytes ? Json(spell_generated(generated, bytes)) : Json(nullptr)},
          {"ended", generated.ended}};
}

}  // namespace

Json cache_object(const std::optional<CacheFigures>& cache) {
  if (!cache) return nullptr;
  return {{"policy", cache->policy},
          {"granularity", cache->granularity},
          {"capacity_tokens", cache->capacity_tokens},
          {"hit_rate_tokens", or_null(cache->hit_rate_tokens)},
          {"hit_rate_units", or_null(cache->hit_rate_units)},
          {"admitted", cache->counters.admitted},
          {"evicted", cache->counters.evicted},
          {"refused", cache->counters.refused}};
}

Json bytes_object(const LinkBytes& bytes) { return parts_object(bytes); }

std::string spell(std::span<const TokenId> tokens, bool bytes) {
  std::string text;
  for (const TokenId token : tokens) {
    if (bytes) {
      text += static_cast<char>(index(token));
    } else {
      text += fmt::format("{}{}", text.empty() ? "" : " ", index(token));
    }
  }
  return text;
}

std::string spell_generated(const GeneratedTokens& generated, bool bytes) {
  const std::span<const TokenId> tokens = generated.tokens;
  return spell(tokens.first(tokens.size() - (generated.ended ? 1 : 0)), bytes);
}

Json turns_list(std::span<const TurnFigures> turns, bool bytes) {
  Json list = Json::array();
  for (const TurnFigures& turn : turns) {
    list.push_back(
        {{"prompt_tokens", turn.prompt_tokens},
         {"decoded_tokens", turn.decoded_tokens},
         {"seconds",
          {{"prompt", turn.prompt_seconds}, {"decode_per_token", turn.decode_per_token}}},
         {"streamed_bytes", turn.streamed_bytes},
         {"bits_per_token", or_null(turn.bits_per_token)}});
    if (!turn.generated.tokens.empty()) {
      list.back()["generated"] = generated_object(turn.generated, bytes);
    }
  }
  return list;
}

Json run_object(const PolicyFigures& figures) {
  return {{"policy", figures.policy},
          {"placement", figures.placement},
          {"gemm", figures.gemm},
          {"budget_tokens", figures.budget_tokens},
          {"selected_tokens", figures.selected_tokens},
          {"attended_tokens_mean", figures.attended_tokens_mean},
          {"bits_per_token", or_null(figures.bits_per_token)},
          {"bits_per_byte", or_null(figures.bits_per_byte)},
          {"bits_delta_vs_full", delta_object(figures.bits_delta)},
          {"top1_agreement", or_null(figures.top1_agreement)},
          {"recall", or_null(figures.recall)},
          {"attention_mass", figures.attention_mass},
          {"attention_error", or_null(figures.attention_error)},
          {"mass_bounds", nullptr},  // no policy knows any (decision 0069)
          {"pseudo_entries_mean", figures.pseudo_entries_mean},
          {"entries_mean", figures.entries_mean()},
          {"retention", retention_object(figures.retention)},
          {"needles", needles_object(figures)},
          {"cache", cache_object(figures.cache)},
          {"index_bytes", figures.index_bytes},
          {"bytes", bytes_object(figures.bytes)},
          {"bytes_per_token", parts_object(figures.bytes_per_token)},
          {"tiers", {{"nvme", nvme_object(figures.nvme)}}},
          {"prefix", prefix_object(figures)},
          {"seconds", seconds_object(figures.seconds)},
          {"attend_bytes_per_second", figures.attend_bytes_per_second},
          {"cache_upkeep_ratio", figures.cache_upkeep_ratio},
          {"cache_upkeep_waited_ratio", figures.cache_upkeep_waited_ratio},
          {"clustering", clustering_object(figures)},
          {"waits", waits_object(figures.waits)},
          {"memory",
           {{"device_peak_bytes", figures.device_peak_bytes},
            {"prompt_device_peak_bytes", figures.prompt_device_peak_bytes},
            {"host_peak_bytes", figures.host_peak_bytes}}}};
}

Json run_document(const RunJob& job, const Machine& machine,
                  std::span<const PolicyFigures> figures) {
  Json document = document_head("run", job.config, machine);
  document["model"] = job.model_folder;
  document["text"] = {{"path", job.text.path},
                      {"context_tokens", job.context},
                      {"scored_tokens", job.generate ? 0 : job.decode}};
  if (job.prefill_chunk > 0) document["text"]["prefill_chunk"] = job.prefill_chunk;
  document["backend"] = {{"name", job.backend.name}, {"reason", job.backend.reason}};
  Json runs = Json::array();
  for (const PolicyFigures& one : figures) {
    runs.push_back(run_object(one));
    if (job.generate) {
      runs.back()["generated"] = generated_object(one.generated, job.tokens_are_bytes());
    }
    if (!one.turns.empty()) {
      runs.back()["turns"] = turns_list(one.turns, job.tokens_are_bytes());
    }
  }
  document["runs"] = runs;
  return document;
}

}  // namespace terrace::apps
