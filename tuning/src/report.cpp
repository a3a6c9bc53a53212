// The page of a tuning: what was found, drawn and in figures, and why the one is recommended.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "terrace/core/bytes.hpp"
#include "terrace/core/config.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/tuning/chart.hpp"
#include "terrace/tuning/page.hpp"
#include "terrace/tuning/tuner.hpp"

namespace terrace::tuning {
namespace {

double bytes_per_token(const TunedRow& row) {
  return static_cast<double>(row.moved_bytes()) /
         static_cast<double>(std::max<std::uint64_t>(1, row.outcome.steps));
}

ChartPoint hit_point(const TunedRow& row) {
  return {static_cast<double>(row.cache.tokens), row.hit_rate_tokens()};
}

/// Returns the common name of rows of one drawing, by the unit that is cached.
std::string series_name(const std::string& words, const TunedRow& row) {
  if (row.cache.granularity == CacheGranularity::block) return words;
  return fmt::format("{}, {}s", words, to_string(row.cache.granularity));
}

std::string policy_series(const TunedRow& row) {
  if (row.offline) return row.cache.policy + ", no bound";
  return series_name(row.cache.policy, row);
}

/// Returns the series of that name; adds it at the end if it is missing.
ChartSeries& series_of(Chart& chart, const std::string& name, ChartSeries fresh = {}) {
  const auto found = std::ranges::find(chart.series, name, &ChartSeries::name);
  if (found != chart.series.end()) return *found;
  fresh.name = name;
  return chart.series.emplace_back(std::move(fresh));
}

/// Returns the hit rates that no cache passes, for blocks and for clusters: the highest over
/// policies that cache blocks of several sizes, and no lower than for any smaller cache.
std::vector<ChartSeries> bound_series(const TuneResult& result) {
  std::map<std::string, std::map<double, double>> bounds;
  for (const TunedRow& row : result.curve) {
    const ChartPoint at = hit_point(row);
    double& bound = bounds[series_name("bound", row)][at.x];
    bound = std::max(
        bound, row.optimum_rows / static_cast<double>(std::max<std::uint64_t>(1, row.rows())));
  }
  std::vector<ChartSeries> all;
  for (const auto& [name, points] : bounds) {
    ChartSeries& series = all.emplace_back(ChartSeries{.name = name, .dashed = true});
    double highest = 0;
    for (const auto& [tokens, bound] : points) {
      highest = std::max(highest, bound);
      series.points.push_back({tokens, highest});
    }
  }
  return all;
}

Chart hit_chart(const TuneResult& result) {
  Chart chart{.title = "Hit rate against capacity",
              .x = {.label = "capacity of a layer", .unit = AxisUnit::tokens},
              .y = {.label = "rows hit", .unit = AxisUnit::share},
              .marked = {hit_point(result.recommended())}};
  for (const TunedRow& row : result.curve) {
    series_of(chart, policy_series(row), {.dashed = row.offline}).points.push_back(hit_point(row));
  }
  std::ranges::move(bound_series(result), std::back_inserter(chart.series));
  return chart;
}

Chart bytes_chart(const TuneResult& result) {
  Chart chart{.title = "Bytes moved against hit rate",
              .x = {.label = "rows hit", .unit = AxisUnit::share},
              .y = {.label = fmt::format("fetched and refilled a {}", result.head.step_name()),
                    .unit = AxisUnit::traffic_bytes}};
  const auto point = [](const TunedRow& row) {
    return ChartPoint{row.hit_rate_tokens(), bytes_per_token(row)};
  };
  for (const TunedRow& row : result.rows) {
    if (row.offline) continue;
    series_of(chart, series_name(row.cache.admission, row), {.joined = false})
        .points.push_back(point(row));
  }
  chart.series.push_back(
      {.name = "no cache", .points = {point(result.without_cache)}, .joined = false});
  chart.marked = {point(result.recommended())};
  return chart;
}

Chart time_chart(const TuneResult& result) {
  const std::string_view step = result.head.step_name();
  Chart chart{.title = fmt::format("Predicted time per {} against capacity", step),
              .x = {.label = "capacity of a layer", .unit = AxisUnit::tokens},
              .y = {.label = fmt::format("time of a {}", step), .unit = AxisUnit::seconds}};
  const auto point = [](const TunedRow& row) {
    return ChartPoint{static_cast<double>(row.cache.tokens), row.seconds_per_token()};
  };
  for (const TunedRow& row : result.curve) {
    series_of(chart, policy_series(row),
              {.points = {point(result.without_cache)}, .dashed = row.offline})
        .points.push_back(point(row));
  }
  chart.marked = {point(result.recommended())};
  return chart;
}

std::string foresight(const TunedRow& row) {
  return row.offline ? " (knows the future, counts units; no bound)" : "";
}

std::string table_row(const TunedRow& row, const TuneResult& result) {
  const std::optional<double> ratio = row.optimum_ratio();
  return fmt::format(
      "<tr{}><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td>"
      "<td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.4f}</td><td>{}</td></tr>\n",
      &row == &result.recommended() ? " class=\"best\"" : "", escaped(row.cache.policy),
      foresight(row), escaped(parameters_of(row.cache)), unit_of(row), row.cache.tokens,
      row.hit_rate_tokens(), row.hit_rate_units(), ratio ? fmt::format("{:.2f}", *ratio) : "-",
      static_cast<double>(row.outcome.bytes.demand) /
          static_cast<double>(std::max<std::uint64_t>(1, row.outcome.steps)) / 1e3,
      static_cast<double>(row.outcome.bytes.refill) /
          static_cast<double>(std::max<std::uint64_t>(1, row.outcome.steps)) / 1e3,
      1e3 * row.seconds_per_token(), result.tied_with_best(row) ? "=" : "");
}

std::string unit_words(const TunedRow& row) {
  if (row.cache.granularity != CacheGranularity::block) {
    return fmt::format("{}s", to_string(row.cache.granularity));
  }
  return fmt::format("blocks of {} tokens", row.block_tokens);
}

/// Says how many caches could be recommended (those that do not know the future), and their
/// capacity.
std::string choices_in_words(const TuneResult& result, std::size_t device_memory) {
  return fmt::format(
      "{} choices have a cache that fits beside sinks, window, index and staging, which take {} of "
      "{}.",
      std::ranges::count(result.rows, false, &TunedRow::offline), format_size(result.fixed_bytes),
      format_size(device_memory));
}

std::string reason_for_none(const TuneResult& result, std::size_t device_memory) {
  const TunedRow& first = result.rows.front();
  const TunedRow& none = result.without_cache;
  return fmt::format(
      "<p>Recommended: <b>no cache</b>. {} None has a predicted time per {} that is less by more "
      "than {:.0f} %: no cache has {:.4f} ms. The best of them, {}, has {:.4f} ms. It moves "
      "{:.1f} kB where no cache moves {:.1f}.</p>\n",
      choices_in_words(result, device_memory), result.head.step_name(), 100 * tie_share,
      1e3 * none.seconds_per_token(), escaped(describe(first)), 1e3 * first.seconds_per_token(),
      bytes_per_token(first) / 1e3, bytes_per_token(none) / 1e3);
}

std::string reason(const TuneResult& result, std::size_t device_memory) {
  const TunedRow& best = result.recommended();
  const TunedRow& none = result.without_cache;
  if (best.cache.none()) return reason_for_none(result, device_memory);
  const double faster = none.seconds_per_token() / std::max(1e-12, best.seconds_per_token());
  const std::string tie = describe_tie(result);
  return fmt::format(
      "<p>Recommended: <b>{}</b>. {} Its predicted time per {} is {:.4f} ms, {}. Without a cache "
      "it is {:.4f} ms, {:.2f} times as much. It moves {:.1f} kB where no cache moves {:.1f}. It "
      "hits {:.1f} % of the rows that the best cache of its size could hit.{}</p>\n",
      escaped(describe(best)), choices_in_words(result, device_memory), result.head.step_name(),
      1e3 * best.seconds_per_token(), tie.empty() ? "the least of all" : "the least but for ties",
      1e3 * none.seconds_per_token(), faster, bytes_per_token(best) / 1e3,
      bytes_per_token(none) / 1e3, 100 * best.optimum_ratio().value_or(0),
      tie.empty() ? "" : " " + tie);
}

/// Returns the lines of a config whose values are not the defaults, below the names of their
/// sections, and all of retrieval, for which `terrace run` has defaults of its own. Both configs
/// have the same keys, a line each.
std::string lines_not_in_defaults(const Config& config) {
  std::istringstream all(write_config(config));
  std::istringstream defaults(write_config(Config()));
  std::string different;
  std::string section;
  std::string heading;
  std::string line;
  std::string usual;
  while (std::getline(all, line) && std::getline(defaults, usual)) {
    if (!line.starts_with(' ')) {
      section = line;
      heading = line.ends_with(':') ? line + "\n" : std::string();
    }
    if (line == usual && (section != "retrieval:" || line == section)) continue;
    different += std::exchange(heading, {}) + line + "\n";
  }
  return different;
}

std::string all_choices(const TuneResult& result) {
  const std::string head = fmt::format(
      "<tr><th>policy</th><th>parameters</th><th>unit</th><th>tokens</th><th>rows hit</th>"
      "<th>units hit</th><th>of optimum</th><th>fetched kB</th><th>refilled kB</th><th>ms a {}</th>"
      "<th>tie</th></tr>",
      result.head.step_name());
  std::string rows;
  for (const TunedRow& row : result.rows) rows += table_row(row, result);
  rows += table_row(result.without_cache, result);
  return table(head, rows);
}

std::string notes(const TuneResult& result) {
  std::string words = fmt::format("<p>kB are per {}; = ties with the least time, within {:.0f} %. ",
                                  result.head.step_name(), 100 * tie_share);
  words +=
      "The optimum is a bound, drawn as such: the hits of a cache of as many slots "
      "that knows the future and may divide its slots freely over time and layers. "
      "belady evicts what is wanted again last: a strong reference for units hit, but no bound. It "
      "counts units, not the rows that a step wants of them: where these differ, a policy that "
      "weighs rows can hit more rows. Clusters differ in size, too, and what a step misses is "
      "admitted one after the other.</p>\n";
  if (result.offline_left_out) words += "<p>" + describe_left_out(result) + "</p>\n";
  return words;
}

}  // namespace

std::string unit_of(const TunedRow& row) {
  if (row.cache.granularity != CacheGranularity::block) {
    return std::string(to_string(row.cache.granularity));
  }
  return std::to_string(row.block_tokens);
}

std::string parameters_of(const CacheOptions& cache) {
  if (cache.none()) return "-";
  std::string words = cache.admission;
  if (words == "refill") words += fmt::format(", horizon {}", cache.refill.horizon_steps);
  const auto setting = policies::replacement_setting(cache.policy);
  const std::size_t value = setting ? cache.replacement.*setting->value : 0;
  return value == 0 ? words : fmt::format("{}, {} {}", words, setting->words, value);
}

std::string describe(const TunedRow& row) {
  if (row.cache.none()) return "no cache";
  return fmt::format("{}, admission {}, {}, {} tokens a layer", row.cache.policy,
                     parameters_of(row.cache), unit_words(row), row.cache.tokens);
}

std::string describe_left_out(const TuneResult& result) {
  if (!result.offline_left_out) return {};
  return fmt::format(
      "Policies that know the future are left out where they would have to hold more than {} "
      "selections of the trace.",
      result.future_selections_max);
}

std::string describe_trace(const TuneResult& result) {
  const TraceHead& head = result.head;
  std::string words = fmt::format("{} {}s of {} layer{}, {} units wanted", result.end.steps,
                                  head.of_requests() ? head.step_name() : "step", head.shape.layers,
                                  head.shape.layers == 1 ? "" : "s",
                                  result.end.selections * head.layers_per_record());
  for (const auto& [name, value] :
       {std::pair("policy", &head.policy), {"budget", &head.budget}, {"model", &head.model}}) {
    if (!value->empty()) words += fmt::format(", {} {}", name, shown(*value));
  }
  return words;
}

std::string report_page(const TuneResult& result, const TuneRequest& request,
                        std::string_view machine, const PageOrigin& origin) {
  std::string page = fmt::format("<p>{}: {}. Costs: {}.</p>\n", escaped(request.trace.string()),
                                 escaped(describe_trace(result)), escaped(machine));
  page += reason(result, request.device_memory);
  if (!result.head.of_requests()) {
    const Config tuned = tuned_config(result, result.recommended(), request.device_memory);
    page += folded("Recommended config: retrieval, and all else that differs from the defaults",
                   preformatted(lines_not_in_defaults(tuned)), /*open=*/true);
  }
  Palette palette;
  std::string drawings;
  for (const Chart& chart : {hit_chart(result), bytes_chart(result), time_chart(result)}) {
    drawings += draw(chart, palette);
  }
  page += side_by_side(drawings);
  page += "<p>The ring marks the recommended choice.</p>\n";
  page += folded(fmt::format("All {} choices, best first", result.rows.size()),
                 all_choices(result) + notes(result));
  return html_page("Cache for " + request.trace.filename().string(), origin, page);
}

}  // namespace terrace::tuning
