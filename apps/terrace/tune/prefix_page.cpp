// The page of `terrace tune --memory`.
#include <fmt/core.h>

#include "terrace/core/bytes.hpp"
#include "terrace/tuning/chart.hpp"
#include "tune/prefix_report.hpp"

namespace terrace::apps {
namespace {

using tuning::Bar;
using tuning::BarChart;
using tuning::escaped;
using tuning::PrefixChoice;

/// "memory 8 GiB, nvme 128 GiB".
std::string sizes_in_words(const PrefixReport& report, const PrefixChoice& choice) {
  std::string words;
  for (std::size_t tier = 0; tier < choice.bytes.size(); ++tier) {
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", report.request.tiers[tier].name,
                         size_text(choice.bytes[tier]));
  }
  return words;
}

/// "asked for", "nvme x 2".
std::string choice_name(const PrefixReport& report, const PrefixChoice& choice) {
  if (&choice == &report.result.asked()) return "asked for";
  if (choice.times > 1) {
    return fmt::format("{} x {}", report.request.tiers[choice.tier].name, choice.times);
  }
  return &choice == &report.result.unlimited() ? "no limits"
                                               : report.request.tiers.back().name + " alone";
}

/// A bar for each choice; `value` is of a choice's tier.
template <typename Value>
std::vector<Bar> bars_of(const PrefixReport& report, Value&& value) {
  std::vector<Bar> bars;
  for (const PrefixChoice& choice : report.result.choices) {
    Bar& bar = bars.emplace_back(Bar{.name = choice_name(report, choice), .parts = {}});
    for (std::size_t tier = 0; tier < choice.bytes.size(); ++tier) {
      bar.parts.push_back({report.request.tiers[tier].name, value(choice, tier)});
    }
  }
  return bars;
}

std::string drawings(const PrefixReport& report) {
  const BarChart found{.title = "Tokens found in each tier",
                       .axis = {.label = "share of all tokens", .unit = tuning::AxisUnit::share},
                       .bars = bars_of(report, [](const PrefixChoice& choice, std::size_t tier) {
                         return static_cast<double>(choice.figures.tiers[tier].hit_tokens) /
                                static_cast<double>(choice.figures.tokens);
                       })};
  const BarChart saved{
      .title = "Time saved against computing all",
      .axis = {.label = "share of the prefill's time", .unit = tuning::AxisUnit::share},
      .bars = bars_of(report, [&](const PrefixChoice& choice, std::size_t tier) {
        return choice.saved_seconds[tier] / report.result.prefill_seconds;
      })};
  tuning::Palette palette;
  return tuning::side_by_side(draw(found, palette) + draw(saved, palette));
}

std::string table_of_choices(const PrefixReport& report) {
  std::string head = "<tr><th>sizes</th><th>of each tier</th>";
  for (const tuning::PrefixTier& tier : report.request.tiers) {
    head += fmt::format("<th>{0} used</th><th>{0} hits %</th><th>{0} evicted</th>", tier.name);
  }
  head += "<th>missed %</th><th>saved s</th><th>saved %</th></tr>";
  const PrefixChoice* const best = &tuning::recommended(report.result);
  std::string rows;
  for (const PrefixChoice& choice : report.result.choices) {
    const auto percent = [&](std::uint64_t tokens) {
      return 100 * static_cast<double>(tokens) / static_cast<double>(choice.figures.tokens);
    };
    rows += fmt::format("<tr{}><td>{}</td><td>{}</td>", &choice == best ? " class=\"best\"" : "",
                        choice_name(report, choice), sizes_in_words(report, choice));
    for (const tuning::PrefixTierFigures& its : choice.figures.tiers) {
      rows += fmt::format("<td>{}</td><td>{:.2f}</td><td>{}</td>",
                          format_size(its.chunks_most * report.result.chunk_bytes),
                          percent(its.hit_tokens), its.evicted);
    }
    rows += fmt::format("<td>{:.2f}</td><td>{:.1f}</td><td>{:.2f}</td></tr>\n",
                        percent(choice.figures.missed_tokens), choice.all_saved_seconds(),
                        100 * choice.all_saved_seconds() / report.result.prefill_seconds);
  }
  return tuning::table(head, rows);
}

std::string recommended_config(const PrefixReport& report, const Config& config) {
  const auto text = prefix_config(report, tuning::recommended(report.result), config);
  if (!text) return fmt::format("<p>No config: {}.</p>\n", escaped(text.error().message()));
  return tuning::folded("Recommended config", tuning::preformatted(*text), /*open=*/true);
}

}  // namespace

std::string prefix_page(const PrefixReport& report, const Config& config,
                        const tuning::PageOrigin& origin) {
  std::string body = tuning::preformatted(prefix_head(report));
  body += fmt::format("<p>{}</p>\n", escaped(tuning::recommend(report.request, report.result)));
  if (const std::string words = together_text(report); !words.empty()) {
    body += fmt::format("<p>{}</p>\n", escaped(words));
  }
  body += recommended_config(report, config);
  body += drawings(report);
  body += tuning::folded("All sizes that were tried", table_of_choices(report), /*open=*/true);
  return tuning::html_page(
      fmt::format("Tiers of stored prefixes for {}", report.request.trace.filename().string()),
      origin, body);
}

}  // namespace terrace::apps
