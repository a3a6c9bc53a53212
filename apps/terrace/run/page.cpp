#include "run/page.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "terrace/core/bytes.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/tuning/chart.hpp"

namespace terrace::apps {
namespace {

using tuning::AxisUnit;
using tuning::Bar;
using tuning::BarChart;
using tuning::escaped;

/// A bar for each policy, of one part that has the policy's colour; `value` is of its figures.
template <typename Value>
std::vector<Bar> bars_of_policies(std::span<const PolicyFigures> figures, Value&& value) {
  std::vector<Bar> bars;
  for (const PolicyFigures& one : figures) {
    bars.push_back({.name = one.policy, .parts = {{one.policy, value(one)}}});
  }
  return bars;
}

BarChart bits_bars(std::span<const PolicyFigures> figures) {
  return {.title = "Bits over full attention's",
          .axis = {.label = "bits a token"},
          .bars = bars_of_policies(figures, [](const PolicyFigures& one) {
            return one.bits_delta ? one.bits_delta->mean : 0;
          })};
}

BarChart mass_bars(std::span<const PolicyFigures> figures) {
  return {.title = "Attention mass on the rows attended",
          .axis = {.label = "share of full attention's weights", .unit = AxisUnit::share},
          .bars = bars_of_policies(figures,
                                   [](const PolicyFigures& one) { return one.attention_mass; })};
}

BarChart error_bars(std::span<const PolicyFigures> figures) {
  return {.title = "Error of attention's outputs",
          .axis = {.label = "share of full attention's outputs", .unit = AxisUnit::share},
          .bars = bars_of_policies(
              figures, [](const PolicyFigures& one) { return one.attention_error.value_or(0); })};
}

BarChart memory_bars(std::span<const PolicyFigures> figures) {
  return {.title = "Device memory while decoding, at most",
          .axis = {.label = "KV, index, cache and staging", .unit = AxisUnit::memory_bytes},
          .bars = bars_of_policies(figures, [](const PolicyFigures& one) {
            return static_cast<double>(one.device_peak_bytes);
          })};
}

BarChart time_bars(std::span<const PolicyFigures> figures) {
  BarChart chart{.title = "Time of a token",
                 .axis = {.label = "decoding", .unit = AxisUnit::seconds}};
  for (const PolicyFigures& one : figures) {
    const RunSeconds& its = one.seconds;
    chart.bars.push_back({.name = one.policy,
                          .parts = {{"model", its.model},
                                    {"attend", its.attend},
                                    {"select", its.select},
                                    {"fetch", its.fetch},
                                    {"wait", its.wait},
                                    {"update", its.update}}});
  }
  return chart;
}

BarChart bytes_bars(std::span<const PolicyFigures> figures) {
  BarChart chart{.title = "Bytes moved for a token",
                 .axis = {.label = "to and from the device", .unit = AxisUnit::traffic_bytes}};
  for (const PolicyFigures& one : figures) {
    const BytesPerToken& its = one.bytes_per_token;
    chart.bars.push_back({.name = one.policy,
                          .parts = {{"missed rows", its.demand},
                                    {"refilled rows", its.refill},
                                    {"selecting", its.index},
                                    {"offloaded rows", its.offload}}});
  }
  return chart;
}

std::string percent_or_dash(const std::optional<double>& share) {
  return share ? fmt::format("{:.2f}", 100 * *share) : std::string("-");
}

std::string figures_row(const PolicyFigures& one, bool best) {
  std::string bits = "<td>-</td><td>-</td>";
  if (one.bits_per_token && one.bits_delta) {
    bits = fmt::format("<td>{:.4f}</td><td>{:+.4f} ± {:.4f}</td>", *one.bits_per_token,
                       one.bits_delta->mean, one.bits_delta->standard_error.value_or(0));
  }
  const std::optional<double> hits = one.cache ? one.cache->hit_rate_tokens : std::nullopt;
  return fmt::format(
      "<tr{}><td>{}</td>{}<td>{}</td><td>{}</td><td>{:.1f}</td><td>{}</td><td>{:.1f}</"
      "td><td>{:.2f}</td>"
      "<td>{}</td><td>{}</td><td>{:.2f}</td></tr>\n",
      best ? " class=\"best\"" : "", escaped(one.policy), bits,
      percent_or_dash(one.attention_error), percent_or_dash(one.recall), 100 * one.attention_mass,
      percent_or_dash(hits), one.attended_tokens_mean, 1e3 * one.seconds.decode_per_token,
      format_size(one.device_peak_bytes), format_size(one.index_bytes), one.seconds.prefill);
}

/// The policy that errs least of those that may be recommended, by attention's outputs: on few
/// tokens, bits are mostly noise. Null if nothing was compared.
const PolicyFigures* least_error(std::span<const PolicyFigures> figures) {
  const PolicyFigures* least = nullptr;
  for (const PolicyFigures& one : figures) {
    if (!is_choice(one.policy) || !one.attention_error) continue;
    if (least == nullptr || *one.attention_error < *least->attention_error) least = &one;
  }
  return least;
}

std::string table_of_policies(std::span<const PolicyFigures> figures) {
  const PolicyFigures* const best = least_error(figures);
  std::string rows;
  for (const PolicyFigures& one : figures) rows += figures_row(one, &one == best);
  return tuning::table(
      "<tr><th>policy</th><th>bits a token</th><th>over full ± s.e.</th><th>error %</th>"
      "<th>recall %</th>"
      "<th>mass %</th><th>cache hits %</th><th>rows attended</th><th>ms a token</th>"
      "<th>device peak</th><th>index</th><th>prefill s</th></tr>",
      rows, /*word_columns=*/1);
}

std::string run_recommendation(const RunJob& job, std::span<const PolicyFigures> figures) {
  const PolicyFigures* const best = least_error(figures);
  if (best == nullptr) return {};
  const std::string& budget = job.config.text("retrieval.budget");
  std::string bits;
  if (best->bits_delta) {
    bits = fmt::format(
        " Its bits a token over full attention's: {:+.4f} ± {:.4f}; differences below twice that "
        "are noise.",
        best->bits_delta->mean, best->bits_delta->standard_error.value_or(0));
  }
  return fmt::format(
             "<p><b>{}</b> errs least: attention's outputs are {:.2f} % from full "
             "attention's.{}</p>\n",
             escaped(best->policy), 100 * *best->attention_error, bits) +
         tuning::folded("Recommended config",
                        tuning::preformatted(policy_config(best->policy, budget)), /*open=*/true);
}

}  // namespace

bool is_choice(std::string_view policy) { return policy != "full" && policy != "oracle"; }

std::string policy_config(std::string_view policy, std::string_view budget) {
  const bool retains = std::ranges::any_of(
      policies::retention_policies(),
      [&](const policies::RetentionEntry& entry) { return entry.name == policy; });
  return fmt::format(
      "{}{}\nretrieval.budget: {}\n",
      retains ? "retrieval.policy: streaming\nretention.policy: " : "retrieval.policy: ", policy,
      budget);
}

std::string run_page(const RunJob& job, const Machine& machine,
                     std::span<const PolicyFigures> figures, const tuning::PageOrigin& origin) {
  std::string body = fmt::format(
      "<p>Model {}; text {}, {} tokens of context, {} {}. Budget {}. Backend {}; {}, {}.</p>\n",
      escaped(job.model_folder), escaped(job.text.path), job.context, job.decode,
      job.generate ? "generated" : "scored", escaped(job.config.text("retrieval.budget")),
      escaped(job.backend.name), escaped(machine.cpu), escaped(machine.isa));
  body += run_recommendation(job, figures);
  tuning::Palette palette;
  std::string drawings;
  if (!job.generate) drawings += draw(bits_bars(figures), palette);
  if (least_error(figures) != nullptr) drawings += draw(error_bars(figures), palette);
  for (const BarChart& chart :
       {mass_bars(figures), time_bars(figures), bytes_bars(figures), memory_bars(figures)}) {
    drawings += draw(chart, palette);
  }
  body += tuning::side_by_side(drawings);
  body += tuning::folded("All figures", table_of_policies(figures), /*open=*/true);
  return tuning::html_page("Policies on one text", origin, body);
}

}  // namespace terrace::apps
