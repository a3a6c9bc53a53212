#include "quality/study.hpp"

#include <fmt/core.h>

#include <cmath>
#include <numeric>
#include <sstream>

#include "run/policy_run.hpp"
#include "terrace/core/token_budget.hpp"

namespace terrace::apps {
namespace {

// Of the budget: as near as entries of whole clusters come to it.
constexpr double entries_tolerance = 0.01;
constexpr int entries_tries = 3;

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

/// One run for each text.
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
        if (figures && figures->pseudo_entries_mean > 0 && !budget.starts_with("mass:")) {
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

  /// Takes rows away from `cell`'s until all entries together are its budget.
  QualityCell at_equal_entries(const QualityCell& cell) {
    QualityCell equal{.policy = cell.policy, .budget = cell.budget, .counted = Counted::entries};
    const auto wanted = static_cast<double>(cell.figures->budget_tokens);
    double rows = wanted;
    double excess = entries_mean(*cell.figures) - wanted;
    for (int tried = 0; tried < entries_tries && std::abs(excess) > entries_tolerance * wanted;
         ++tried) {
      rows -= excess;
      if (rows < 2) {
        return {.policy = cell.policy,
                .budget = cell.budget,
                .counted = Counted::entries,
                .reason = fmt::format("its estimates alone are more than {:.0f} entries", wanted)};
      }
      measure(equal, fmt::format("{:.0f}", std::floor(rows)));
      if (!equal.figures) break;
      excess = entries_mean(*equal.figures) - wanted;
    }
    return equal;
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
  QualityStudy study;
  for (const RunOptions& run : runs_of(options)) {
    TERRACE_ASSIGN(RunJob job, prepare_job(run));
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
