#include "quality/study.hpp"

#include <fmt/core.h>

#include <cmath>
#include <numeric>
#include <sstream>

#include "run/model_notes.hpp"
#include "run/policy_run.hpp"
#include "terrace/core/token_budget.hpp"

namespace terrace::apps {
namespace {

// A share of the budget: entries of whole clusters come as near as this to it.
constexpr double entries_tolerance = 0.01;
constexpr int entries_tries = 3;
// Shares of the budget. If estimates leave less than `rows_least` for rows, the estimates get only
// `estimates_then`: a policy that attends to hardly any row exactly is of no practical use.
constexpr double rows_least = 0.25;
constexpr double estimates_then = 0.5;

Result<std::vector<std::string>> read_budgets(const std::string& list) {
  std::vector<std::string> budgets;
  std::istringstream stream(list);
  for (std::string one; std::getline(stream, one, ',');) {
    TERRACE_TRY(parse_token_budget(one));
    budgets.push_back(one);
  }
  if (budgets.empty()) return fail(Errc::invalid_argument, "--budget: names no budget");
  return budgets;
}

/// Returns a run for each text.
std::vector<RunOptions> runs_of(const QualityOptions& options) {
  std::vector<RunOptions> runs;
  for (const std::string& file : options.text_files) {
    runs.push_back(options.run);
    runs.back().text_file = file;
  }
  for (const std::string& file : options.token_files) {
    runs.push_back(options.run);
    runs.back().tokens_file = file;
  }
  if (runs.empty()) runs.push_back(options.run);
  return runs;
}

/// Whether a budget of entries is not the number of entries that a policy attends to.
bool gives_other_entries(const PolicyFigures& figures) {
  return figures.pseudo_entries_mean > 0 || figures.retention.has_value();
}

/// The cells of one text.
class TextStudy {
 public:
  TextStudy(RunJob& job, const std::vector<std::string>& budgets, Progress& progress)
      : job_(job),
        budgets_(budgets),
        progress_(progress),
        probe_(job.model.config().kv_shape(kv_dtype(job)), job.context + job.decode) {}

  Result<TextQuality> run() {
    progress_.begin_with(job_.text.path + ": ");
    TERRACE_ASSIGN(reference_, run_reference_pass(job_, probe_, progress_));
    const std::vector<double>& bits = reference_.scores.bits;
    TextQuality text{
        .path = job_.text.path,
        .full_bits = std::accumulate(bits.begin(), bits.end(), 0.0) / double(bits.size())};
    std::size_t done = 0;
    for (const std::string& budget : budgets_) {
      for (const std::string& policy : job_.policies) {
        progress_.begin_with(fmt::format("{}: {} of {}, budget {}, ", job_.text.path, ++done,
                                         budgets_.size() * job_.policies.size(), budget));
        text.cells.push_back({.policy = policy, .budget = budget});
        measure(text.cells.back(), budget);
        const auto& figures = text.cells.back().figures;
        // A share of mass is reached by rows, however many.
        if (figures && gives_other_entries(*figures) && !budget.starts_with("mass:")) {
          text.cells.push_back(at_equal_entries(text.cells.back()));
        }
      }
    }
    progress_.clear();
    return text;
  }

 private:
  void measure(QualityCell& cell, const std::string& budget) {
    const Status accepted =
        job_.config.set("retrieval.budget", budget, {ConfigOrigin::flag, "--budget"});
    auto figures = accepted.has_value() ? run_policy({.job = job_,
                                                      .reference = reference_,
                                                      .probe = probe_,
                                                      .progress = progress_,
                                                      .times_bare_prefill = false},
                                                     cell.policy)
                                        : Result<PolicyFigures>(tl::unexpected(accepted.error()));
    if (figures) {
      cell.figures = std::move(*figures);
    } else {
      cell.reason = figures.error().message();
    }
  }

  /// Takes rows away from `cell`'s until all entries together are its budget, and estimates where
  /// those alone would be too many.
  QualityCell at_equal_entries(const QualityCell& cell) {
    const Config config = job_.config;
    QualityCell equal = filled_with_entries(cell);
    job_.config = config;
    return equal;
  }

  QualityCell filled_with_entries(const QualityCell& cell) {
    QualityCell equal = cell;
    equal.counted = Counted::entries;
    equal.entries_wanted = cell.figures->budget_tokens;
    const auto wanted = static_cast<double>(equal.entries_wanted);
    double rows = wanted;
    double excess = cell.figures->entries_mean() - wanted;
    if (wanted - excess < rows_least * wanted) {
      const double estimates = cell.figures->pseudo_entries_mean;
      equal.estimated_share = estimate_less(cell.policy, estimates_then * wanted / estimates);
      if (equal.estimated_share) excess += estimates_then * wanted - estimates;
      equal.figures.reset();
    }
    const auto on_target = [&] {
      return equal.figures && std::abs(excess) <= entries_tolerance * wanted;
    };
    for (int tried = 0; tried < entries_tries && !on_target(); ++tried) {
      rows -= excess;
      equal.figures.reset();
      if (rows < 2) {
        equal.reason = fmt::format("its estimates alone are more than {:.0f} entries", wanted);
        return equal;
      }
      measure(equal, fmt::format("{:.0f}", std::floor(rows)));
      if (!equal.figures) return equal;
      excess = equal.figures->entries_mean() - wanted;
    }
    equal.on_target = on_target();
    return equal;
  }

  /// Multiplies the estimated share of `policy` by `part`; returns the setting's new value, nothing
  /// for a policy that has no such setting.
  std::optional<double> estimate_less(const std::string& policy, double part) {
    const std::string key = policy + ".estimated_share";
    if (find_config_key(key) == nullptr) return std::nullopt;
    const double share = job_.config.number(key) * part;
    const Status accepted =
        job_.config.set(key, fmt::format("{:.4f}", share), {ConfigOrigin::flag, "equal entries"});
    return accepted.has_value() ? std::optional(share) : std::nullopt;
  }

  RunJob& job_;
  const std::vector<std::string>& budgets_;
  Progress& progress_;
  engine::AttentionProbe probe_;
  ReferencePass reference_;
};

}  // namespace

Result<QualityStudy> study_quality(const QualityOptions& options, Progress& progress) {
  TERRACE_ASSIGN(const std::vector<std::string> budgets, read_budgets(options.budgets));
  QualityStudy study{.quick = options.quick};
  for (const RunOptions& run : runs_of(options)) {
    TERRACE_ASSIGN(RunJob job, prepare_job(run));
    if (study.texts.empty()) show_model_notes(job.model, run.shared);
    study.config = job.config;
    study.model = job.model_folder;
    study.gpu = job.backend.device;
    study.context = job.context;
    study.scored = job.decode;
    study.bytes = job.tokens_are_bytes();
    TERRACE_ASSIGN(TextQuality text, TextStudy(job, budgets, progress).run());
    study.texts.push_back(std::move(text));
  }
  return study;
}

}  // namespace terrace::apps
