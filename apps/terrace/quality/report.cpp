#include "quality/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "harness/row.hpp"
#include "run/report.hpp"
#include "terrace/core/version.hpp"

namespace terrace::apps {
namespace {

constexpr const char* counted_name(Counted counted) noexcept {
  return counted == Counted::rows ? "rows" : "entries";
}

/// Of run's figures those that tell of quality, and what it took.
Json quality_figures(const PolicyFigures& figures) {
  constexpr std::array names{
      "budget_tokens",  "selected_tokens", "attended_tokens_mean", "pseudo_entries_mean",
      "index_bytes",    "bits_per_token",  "bits_per_byte",        "bits_delta_vs_full",
      "top1_agreement", "recall",          "attention_mass",       "mass_bounds",
      "needles",        "early_fetch"};
  const Json all = run_object(figures);
  Json chosen = Json::object();
  for (const char* const name : names) chosen[name] = all.at(name);
  return chosen;
}

/// What rows call a text: its file's name, or all of its path where two texts share that name.
std::string label_of(const QualityStudy& study, const TextQuality& text) {
  const auto file_name = [](const std::string& path) {
    return std::filesystem::path(path).filename().string();
  };
  const std::string name = file_name(text.path);
  const auto sharers = std::ranges::count_if(
      study.texts, [&](const TextQuality& other) { return file_name(other.path) == name; });
  return sharers == 1 && !name.empty() ? name : text.path;
}

bench::Row row_of(const QualityStudy& study, const TextQuality& text, const QualityCell& cell) {
  bench::Row row{.name = fmt::format("quality_{}_{}_{}_{}", cell.policy, cell.budget,
                                     counted_name(cell.counted), label_of(study, text)),
                 .parameters = {{"policy", cell.policy},
                                {"budget", cell.budget},
                                {"counted", counted_name(cell.counted)},
                                {"text", text.path},
                                {"model", study.model},
                                {"context_tokens", study.context}},
                 .reason = cell.reason,
                 .unit = study.unit(),
                 .samples = study.scored};
  if (!cell.figures) return row;
  row.value = cell.figures->bits_per_token;
  row.spread = cell.figures->bits_delta->standard_error.value_or(0) / *row.value;
  row.peer =
      bench::PeerFigure{.name = "full", .version = std::string(version()), .value = text.full_bits};
  return row;
}

std::string decimals(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string line(const TextQuality& text, const QualityCell& cell) {
  const std::string name = cell.policy + (cell.counted == Counted::entries ? ", all entries" : "");
  if (!cell.figures) return fmt::format("{:<7} {:<22} n/a: {}\n", cell.budget, name, cell.reason);
  const PolicyFigures& one = *cell.figures;
  const MeanWithError& delta = *one.bits_delta;
  return fmt::format(
      "{:<7} {:<22} {:>7.4f} {:>+8.4f} ±{:<6.4f} {:>+7.2f} {:>6} {:>6.3f} {:>7} "
      "{:>7.1f} {:>7.1f} {:>9.1f}\n",
      cell.budget, name, *one.bits_per_token, delta.mean, delta.standard_error.value_or(0),
      100 * delta.mean / text.full_bits, decimals(one.recall, 3), one.attention_mass,
      decimals(digits_right(one), 3), one.attended_tokens_mean, one.pseudo_entries_mean,
      static_cast<double>(one.index_bytes) / 1e3);
}

}  // namespace

std::optional<double> digits_right(const PolicyFigures& figures) {
  if (figures.needles.empty()) return std::nullopt;
  std::size_t digits = 0;
  std::size_t right = 0;
  for (const NeedleScore& score : figures.needles) {
    digits += score.digits;
    right += score.right;
  }
  return static_cast<double>(right) / static_cast<double>(digits);
}

Json quality_rows(const QualityStudy& study) {
  Json rows = Json::array();
  for (const TextQuality& text : study.texts) {
    for (const QualityCell& cell : text.cells) {
      rows.push_back(bench::to_json(row_of(study, text, cell)));
      rows.back()["figures"] = cell.figures ? quality_figures(*cell.figures) : Json(nullptr);
    }
  }
  return rows;
}

std::string quality_table(const QualityStudy& study) {
  std::string all;
  for (const TextQuality& text : study.texts) {
    all += fmt::format("{}{}: {} tokens of context, {} scored; full attention {:.4f} {}\n\n",
                       all.empty() ? "" : "\n", text.path, study.context, study.scored,
                       text.full_bits, study.unit());
    all += fmt::format("{:<7} {:<22} {:>7} {:>8} {:<7} {:>7} {:>6} {:>6} {:>7} {:>7} {:>7} {:>9}\n",
                       "budget", "policy", "bits", "over", "± s.e.", "over %", "recall", "mass",
                       "digits", "rows", "others", "index kB");
    for (const QualityCell& cell : text.cells) all += line(text, cell);
  }
  return all;
}

}  // namespace terrace::apps
