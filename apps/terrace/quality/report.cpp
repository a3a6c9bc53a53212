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

/// Returns those of run's figures that tell of quality, and of its price.
Json quality_figures(const PolicyFigures& figures) {
  constexpr std::array names{"budget_tokens",
                             "selected_tokens",
                             "attended_tokens_mean",
                             "pseudo_entries_mean",
                             "index_bytes",
                             "bits_per_token",
                             "bits_per_byte",
                             "bits_delta_vs_full",
                             "top1_agreement",
                             "recall",
                             "attention_mass",
                             "attention_error",
                             "entries_mean",
                             "retention",
                             "needles"};
  const Json all = run_object(figures);
  Json chosen = Json::object();
  for (const char* const name : names) chosen[name] = all.at(name);
  return chosen;
}

/// Returns a text's name in rows: its file's name, or all of its path where two texts share that
/// name.
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

}  // namespace

std::string name_of(const QualityCell& cell) {
  return cell.policy + (cell.counted == Counted::entries ? ", all entries" : "");
}

std::string remark(const QualityCell& cell) {
  std::string said;
  if (cell.estimated_share) {
    said = fmt::format("estimates {:.2f} of the clusters, to leave room for rows",
                       *cell.estimated_share);
  }
  if (cell.figures && !cell.on_target) {
    said += fmt::format("{}its entries are {:.1f}, not {}", said.empty() ? "" : "; ",
                        cell.figures->entries_mean(), cell.entries_wanted);
  }
  return said;
}

std::vector<NeedleScore> digits_by_depth(const PolicyFigures& figures, std::size_t bands) {
  std::vector<NeedleScore> sums(bands);
  for (const NeedleScore& score : figures.needles) {
    const double band = score.depth * static_cast<double>(bands);
    NeedleScore& sum = sums[std::min(bands - 1, static_cast<std::size_t>(band))];
    sum.digits += score.digits;
    sum.right += score.right;
  }
  return sums;
}

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
      if (cell.counted == Counted::entries) {
        rows.back()["entries_wanted"] = cell.entries_wanted;
        rows.back()["estimated_share"] =
            cell.estimated_share ? Json(*cell.estimated_share) : Json(nullptr);
        rows.back()["on_target"] = cell.on_target;
      }
      rows.back()["figures"] = cell.figures ? quality_figures(*cell.figures) : Json(nullptr);
    }
  }
  return rows;
}

}  // namespace terrace::apps
