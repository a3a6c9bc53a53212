#include "tune/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::apps {
namespace {

std::string line(const tuning::TuneResult& result, const tuning::TunedRow& row,
                 std::string_view name) {
  const std::optional<double> ratio = row.optimum_ratio();
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, row.outcome.steps));
  return fmt::format(
      "{:<12} {:<36} {:>7} {:>8} {:>6.3f} {:>6.3f} {:>8.1f} {:>8.1f} {:>10.4f} "
      "{:>7}{}\n",
      name, tuning::parameters_of(row.cache) + (row.offline ? ", no bound" : ""),
      tuning::unit_of(row), row.cache.tokens, row.hit_rate_tokens(), row.hit_rate_units(),
      static_cast<double>(row.outcome.bytes.demand) / steps / 1e3,
      static_cast<double>(row.outcome.bytes.refill) / steps / 1e3, 1e3 * row.seconds_per_token(),
      ratio ? fmt::format("{:.3f}", *ratio) : "-", result.tied_with_best(row) ? "   =" : "");
}

/// Says of a policy that knows the future why another one of the table has hit more rows
/// in a cache that is no larger.
std::string explain_beaten(std::span<const tuning::TunedRow* const> listed) {
  for (const tuning::TunedRow* const offline : listed) {
    if (!offline->offline) continue;
    const tuning::TunedRow* most = offline;
    for (const tuning::TunedRow* const row : listed) {
      const bool alike =
          row->unit() == offline->unit() && row->cache.tokens <= offline->cache.tokens;
      if (alike && row->outcome.cache.rows_hit > most->outcome.cache.rows_hit) most = row;
    }
    if (most == offline) continue;
    return fmt::format(
        "{} hits fewer rows than {}: it keeps the units that come back first, however few of their "
        "rows are wanted\n",
        offline->cache.policy, most->cache.policy);
  }
  return {};
}

}  // namespace

Json tuned_object(const tuning::TuneResult& result, const tuning::TunedRow& row) {
  const std::optional<double> ratio = row.optimum_ratio();
  Json parameters{{"admission", row.cache.admission},
                  {"granularity", to_string(row.cache.granularity)},
                  {"horizon", row.cache.refill.horizon_steps},
                  {"block_tokens", row.block_tokens},
                  {"cache_tokens", row.cache.tokens},
                  {"offline", row.offline}};
  for (const auto& entry : policies::replacement_policies()) {
    if (!entry.setting) continue;
    parameters[std::string(entry.setting->name())] = row.cache.replacement.*entry.setting->value;
  }
  return {{"policy", row.cache.policy},
          {"parameters", std::move(parameters)},
          {"hit_rate_tokens", row.hit_rate_tokens()},
          {"hit_rate_units", row.hit_rate_units()},
          {"demand_bytes", row.outcome.bytes.demand},
          {"refill_bytes", row.outcome.bytes.refill},
          {"predicted_seconds_per_token", row.seconds_per_token()},
          {"optimum_ratio", ratio ? Json(*ratio) : Json()},
          {"tied_with_best", result.tied_with_best(row)}};
}

std::string tuned_table(const tuning::TuneResult& result) {
  const bool requests = result.head.of_requests();
  const char* const moved = requests ? "kB/req" : "kB/tok";
  std::string text =
      fmt::format("{:<12} {:<36} {:>7} {:>8} {:>6} {:>6} {:>8} {:>8} {:>10} {:>7}{}\n", "policy",
                  "parameters", "unit", "tokens", "rows", "units", moved, moved,
                  requests ? "ms/request" : "ms/token", "of opti-", " tie");
  text += fmt::format("{:<12} {:<36} {:>7} {:>8} {:>6} {:>6} {:>8} {:>8} {:>10} {:>7}{}\n", "", "",
                      "", "/layer", "hit", "hit", "fetched", "refilled", "predicted", "mum", "");
  std::set<std::pair<std::string_view, CacheGranularity>> seen;
  std::vector<const tuning::TunedRow*> listed;
  for (const tuning::TunedRow& row : result.rows) {
    const bool best = seen.emplace(row.cache.policy, row.cache.granularity).second;
    if (!best && &row != &result.recommended()) continue;
    text += line(result, row, row.cache.policy);
    listed.push_back(&row);
  }
  text += line(result, result.without_cache, "(no cache)");
  if (const std::size_t more = result.rows.size() - listed.size(); more > 0) {
    text += fmt::format("{} more: --format json, or --report FILE\n", more);
  }
  text += explain_beaten(listed);
  if (result.offline_left_out) text += tuning::describe_left_out(result) + '\n';
  return text;
}

}  // namespace terrace::apps
