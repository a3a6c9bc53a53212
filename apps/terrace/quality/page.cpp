// The page of a study of quality.
#include "terrace/tuning/page.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "quality/recommendation.hpp"
#include "quality/report.hpp"
#include "run/page.hpp"
#include "terrace/tuning/chart.hpp"

namespace terrace::apps {
namespace {

using tuning::AxisUnit;
using tuning::Chart;
using tuning::ChartPoint;
using tuning::ChartSeries;
using tuning::escaped;

/// Adds to each policy's series the points that `point` gives for its cells; those without are
/// left out.
template <typename Point>
void add_series(Chart& chart, const TextQuality& text, Counted counted, Point&& point) {
  for (const QualityCell& cell : text.cells) {
    if (!cell.figures || cell.counted != counted) continue;
    const std::optional<ChartPoint> one = point(*cell.figures);
    if (!one) continue;
    const std::string name = name_of(cell);
    auto series = std::ranges::find(chart.series, name, &ChartSeries::name);
    if (series == chart.series.end()) {
      // The oracle reads every key: a bound, not a product.
      chart.series.push_back({.name = name, .points = {}, .dashed = cell.policy == "oracle"});
      series = std::prev(chart.series.end());
    }
    series->points.push_back(*one);
  }
  for (ChartSeries& series : chart.series) {
    std::ranges::sort(series.points, {}, &ChartPoint::x);
  }
}

Chart bits_chart(const TextQuality& text) {
  Chart chart{.title = "Bits over full attention's, by rows",
              .x = {.label = "rows attended exactly", .unit = AxisUnit::tokens},
              .y = {.label = "bits over full attention's", .unit = AxisUnit::percent}};
  add_series(chart, text, Counted::rows, [&](const PolicyFigures& one) {
    return ChartPoint{one.attended_tokens_mean, percent_over(text, one)};
  });
  return chart;
}

/// The chart in which entries that stand for clusters count as rows.
Chart entries_chart(const TextQuality& text) {
  Chart chart{.title = "Bits over full attention's, by all entries",
              .x = {.label = "entries: rows, and what stands for clusters"},
              .y = {.label = "bits over full attention's", .unit = AxisUnit::percent}};
  const auto point = [&](const PolicyFigures& one) {
    return ChartPoint{one.entries_mean(), percent_over(text, one)};
  };
  add_series(chart, text, Counted::rows, point);
  add_series(chart, text, Counted::entries, point);
  return chart;
}

Chart recall_chart(const TextQuality& text) {
  Chart chart{.title = "Recall of the true top rows",
              .x = {.label = "rows attended exactly", .unit = AxisUnit::tokens},
              .y = {.label = "recall", .unit = AxisUnit::share}};
  add_series(chart, text, Counted::rows, [](const PolicyFigures& one) {
    return one.recall ? std::optional(ChartPoint{one.attended_tokens_mean, *one.recall})
                      : std::nullopt;
  });
  return chart;
}

Chart mass_chart(const TextQuality& text) {
  Chart chart{.title = "Attention mass on the rows attended exactly",
              .x = {.label = "rows attended exactly", .unit = AxisUnit::tokens},
              .y = {.label = "attention mass", .unit = AxisUnit::share}};
  add_series(chart, text, Counted::rows, [](const PolicyFigures& one) {
    return ChartPoint{one.attended_tokens_mean, one.attention_mass};
  });
  return chart;
}

/// Right digits by depth, in ten bands, within the budget in the middle of those asked for.
Chart needles_chart(const TextQuality& text) {
  constexpr std::size_t bands = 10;
  std::vector<std::string> budgets;
  for (const QualityCell& cell : text.cells) {
    if (std::ranges::find(budgets, cell.budget) == budgets.end()) budgets.push_back(cell.budget);
  }
  const std::string& budget = budgets[budgets.size() / 2];
  Chart chart{.title = "Digits of planted facts right, budget " + budget,
              .x = {.label = "depth in the context", .unit = AxisUnit::share},
              .y = {.label = "digits right", .unit = AxisUnit::share}};
  for (const QualityCell& cell : text.cells) {
    if (!cell.figures || cell.budget != budget || cell.counted != Counted::rows) continue;
    const std::vector<NeedleScore> sums = digits_by_depth(*cell.figures, bands);
    ChartSeries series{.name = cell.policy, .points = {}};
    for (std::size_t band = 0; band < bands; ++band) {
      if (sums[band].digits == 0) continue;
      series.points.push_back(
          {(double(band) + 0.5) / bands, double(sums[band].right) / double(sums[band].digits)});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string table_row(const TextQuality& text, const QualityCell& cell) {
  std::string name = name_of(cell);
  if (const std::string said = remark(cell); !said.empty()) name += " (" + said + ")";
  std::string row = fmt::format("<tr><td>{}</td><td>{}</td>", cell.budget, escaped(name));
  if (!cell.figures)
    return row + fmt::format("<td colspan=11>{}</td></tr>\n", escaped(cell.reason));
  const PolicyFigures& one = *cell.figures;
  const auto digits = digits_right(one);
  const auto or_dash = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.3f}", *value) : std::string("-");
  };
  return row +
         fmt::format(
             "<td>{:.4f}</td><td>{:+.4f} ± {:.4f}</td><td>{:+.2f}</td><td>{}</td><td>{:.3f}</td>"
             "<td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}</td>"
             "</tr>\n",
             *one.bits_per_token, one.bits_delta->mean, one.bits_delta->standard_error.value_or(0),
             percent_over(text, one), or_dash(one.attention_error), one.attention_mass,
             or_dash(one.recall), or_dash(digits), one.entries_mean(), one.attended_tokens_mean,
             one.pseudo_entries_mean, double(one.index_bytes) / 1e3);
}

std::string section(const QualityStudy& study, const TextQuality& text, tuning::Palette& palette) {
  std::string html = fmt::format(
      "<h2>{}</h2>\n<p>{} tokens of context, {} scored. Full attention: {:.4f} {}.</p>\n",
      escaped(text.path), study.context, study.scored, text.full_bits, study.unit());
  std::string drawings;
  for (const Chart& chart :
       {bits_chart(text), entries_chart(text), recall_chart(text), mass_chart(text)}) {
    drawings += draw(chart, palette);
  }
  const bool asked = std::ranges::any_of(text.cells, [](const QualityCell& cell) {
    return cell.figures && !cell.figures->needles.empty();
  });
  if (asked) drawings += draw(needles_chart(text), palette);
  std::string rows;
  for (const QualityCell& cell : text.cells) rows += table_row(text, cell);
  return html + tuning::side_by_side(drawings) +
         tuning::folded("All figures",
                        tuning::table("<tr><th>budget</th><th>policy</th><th>bits</th>"
                                      "<th>over full ± s.e.</th><th>over %</th><th>error</th>"
                                      "<th>mass</th><th>recall</th><th>digits right</th>"
                                      "<th>entries</th><th>exact</th><th>estimates</th>"
                                      "<th>index kB</th></tr>",
                                      rows),
                        /*open=*/true);
}

/// The policy that errs least within each budget, and the config of the middle one.
std::string recommendation_section(const QualityStudy& study) {
  const std::vector<BestPolicy> best = best_policies(study);
  if (best.empty()) return {};
  std::string words;
  for (const BestPolicy& one : best) {
    words += fmt::format("<li>budget {}: <b>{}</b>, {:.2f} %; bits {:+.2f} %</li>\n",
                         escaped(one.budget), escaped(one.policy), 100 * one.error, one.percent);
  }
  const BestPolicy& middle = best[best.size() / 2];
  return fmt::format(
             "<p>Least error of attention's outputs against full attention's, mean over texts, "
             "rows counted; and the bits over full attention's:</p>\n<ul>\n{}</ul>\n",
             words) +
         tuning::folded("Recommended config",
                        tuning::preformatted("# Errs least within the budget in the middle, over "
                                             "all texts.\n" +
                                             policy_config(middle.policy, middle.budget)),
                        /*open=*/true);
}

constexpr std::string_view meaning =
    "<p>Bits are of text that follows the context, fed token by token. The difference of a policy "
    "to full attention is paired step by step, with its standard error: differences below twice "
    "that are noise. A budget counts the rows that are attended exactly, sinks, window and the "
    "step's own included. Entries that stand for clusters are counted apart; where it says “all "
    "entries”, rows and they together fill the budget.</p>\n"
    "<p>Retention drops or merges tokens for good. Its window grows to twice its size before "
    "tokens "
    "leave it, so that entries lie between the budget + 1 and the budget + the window, and “all "
    "entries” means a lower budget whose entries are the budget in the mean. The error is of "
    "attention's outputs. The index is what a step scans, all layers.</p>\n";

}  // namespace

std::string quality_page(const QualityStudy& study, const Machine& machine,
                         const tuning::PageOrigin& origin) {
  std::string body = fmt::format("<p>Model {}; {}, {}.</p>\n", escaped(study.model),
                                 escaped(machine.cpu), escaped(machine.isa));
  body += recommendation_section(study);
  tuning::Palette palette;
  for (const TextQuality& text : study.texts) body += section(study, text, palette);
  body += tuning::folded("Meaning of the figures", meaning);
  return tuning::html_page("Quality of policies", origin, body);
}

}  // namespace terrace::apps
