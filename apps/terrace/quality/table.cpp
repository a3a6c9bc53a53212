// The table of a study of quality.
#include "run/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "quality/recommendation.hpp"
#include "quality/report.hpp"

namespace terrace::apps {
namespace {

/// Bands of depth in the table.
constexpr std::size_t depth_bands = 10;

std::string line(const TextQuality& text, const QualityCell& cell) {
  const std::string name = name_of(cell) + (remark(cell).empty() ? "" : " *");
  if (!cell.figures) return fmt::format("{:<22} n/a: {}\n", name, cell.reason);
  const PolicyFigures& one = *cell.figures;
  const MeanWithError& delta = *one.bits_delta;
  return fmt::format(
      "{:<22} {:>7.4f} {:>+8.4f} ±{:<6.4f} {:>+7.2f} {:>6} {:>6.3f} {:>6} {:>6} {:>8.1f} {:>9.1f} "
      "{:>9.1f}\n",
      name, *one.bits_per_token, delta.mean, delta.standard_error.value_or(0),
      percent_over(text, one), decimals(one.attention_error, 3), one.attention_mass,
      decimals(one.recall, 3), decimals(digits_right(one), 3), one.entries_mean(),
      one.pseudo_entries_mean, static_cast<double>(one.index_bytes) / 1e3);
}

/// A line above the cells of a budget. Policies that keep everything have a larger one.
std::string budget_line(const TextQuality& text, const std::string& budget) {
  std::size_t entries = std::numeric_limits<std::size_t>::max();
  for (const QualityCell& cell : text.cells) {
    if (cell.budget != budget || !cell.figures || cell.counted == Counted::entries) continue;
    entries = std::min(entries, cell.figures->budget_tokens);
  }
  const bool counts =
      entries < std::numeric_limits<std::size_t>::max() && !budget.starts_with("mass:");
  return "\nbudget " + budget + (counts ? fmt::format(" ({} entries)", entries) : "") + "\n";
}

/// The cells of a text, grouped by budget.
std::string groups(const TextQuality& text) {
  std::string lines =
      fmt::format("{:<22} {:>7} {:>8} {:<7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>8} {:>9} {:>9}\n",
                  "policy", "bits", "over", "± s.e.", "over %", "error", "mass", "recall", "digits",
                  "entries", "estimates", "index kB");
  const std::string* budget = nullptr;
  for (const QualityCell& cell : text.cells) {
    if (budget == nullptr || *budget != cell.budget) lines += budget_line(text, cell.budget);
    budget = &cell.budget;
    lines += line(text, cell);
  }
  return lines;
}

std::string remarks(const TextQuality& text) {
  std::string lines;
  for (const QualityCell& cell : text.cells) {
    const std::string said = remark(cell);
    if (said.empty()) continue;
    lines += fmt::format("* {}, budget {}: {}\n", cell.policy, cell.budget, said);
  }
  return lines;
}

constexpr std::string_view note_of_entries = R"(
Entries are the mean of a step, estimates among them; the error is of attention's outputs. With
retention, entries lie between the budget + 1 and the budget + the window, which grows to twice its
size before tokens leave it. Rows that say "all entries" were run with a lower budget, so that their
entries are the group's budget in the mean: compare those with policies that do not estimate.
)";

/// Returns how entries of the table compare; nothing where all are rows.
std::string entries_note(const TextQuality& text) {
  const bool needed = std::ranges::any_of(
      text.cells, [](const QualityCell& cell) { return cell.counted == Counted::entries; });
  return std::string(needed ? note_of_entries : "");
}

/// Right digits in percent by depth; nothing where no needles were asked for.
std::string depth_table(const TextQuality& text) {
  std::string lines;
  AskedAt place = AskedAt::after;
  for (const QualityCell& cell : text.cells) {
    if (!cell.figures || cell.figures->needles.empty()) continue;
    place = cell.figures->needles_asked;
    lines += fmt::format("{:<7} {:<22}", cell.budget, name_of(cell));
    for (const NeedleScore& band : digits_by_depth(*cell.figures, depth_bands)) {
      lines += fmt::format(
          " {:>4}", band.digits == 0 ? "-" : fmt::format("{}", 100 * band.right / band.digits));
    }
    lines += "\n";
  }
  if (lines.empty()) return {};
  std::string head = fmt::format("\n{:<30}", "digits right, % from depth");
  for (std::size_t band = 0; band < depth_bands; ++band) {
    head += fmt::format(" {:>4.1f}", static_cast<double>(band) / depth_bands);
  }
  return fmt::format("{}\n{}facts were asked for {}\n", head, lines,
                     place == AskedAt::prompt ? "in the prompt" : "after the text");
}

/// The policy that errs least within each budget; nothing where no policy is a choice.
std::string recommendation_lines(const QualityStudy& study) {
  std::string lines;
  for (const BestPolicy& best : best_policies(study)) {
    lines +=
        fmt::format("recommended within budget {}: --policy {}, error {:.3f}, {:+.2f} % bits\n",
                    best.budget, best.policy, best.error, best.percent);
  }
  return lines.empty() ? lines : "\n" + lines;
}

}  // namespace

std::string quality_table(const QualityStudy& study) {
  std::string all;
  for (const TextQuality& text : study.texts) {
    all += fmt::format("{}{}: {} tokens of context, {} scored; full attention {:.4f} {}\n\n",
                       all.empty() ? "" : "\n", text.path, study.context, study.scored,
                       text.full_bits, study.unit());
    all += groups(text) + remarks(text) + entries_note(text) + depth_table(text);
  }
  return all + recommendation_lines(study);
}

}  // namespace terrace::apps
