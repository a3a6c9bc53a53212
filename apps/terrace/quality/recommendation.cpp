#include "quality/recommendation.hpp"

#include <algorithm>
#include <map>

#include "run/page.hpp"

namespace terrace::apps {
namespace {

/// A policy's means over texts, within one budget.
struct PolicyMeans {
  double error = 0;
  double percent = 0;
  std::size_t texts = 0;
};

std::map<std::string, PolicyMeans> means_by_policy(const QualityStudy& study,
                                                   const std::string& budget) {
  std::map<std::string, PolicyMeans> means;
  const auto texts = static_cast<double>(study.texts.size());
  for (const TextQuality& text : study.texts) {
    for (const QualityCell& cell : text.cells) {
      if (!is_choice(cell.policy) || !cell.figures || !cell.figures->attention_error ||
          cell.budget != budget || cell.counted != Counted::rows) {
        continue;
      }
      PolicyMeans& its = means[cell.policy];
      its.error += *cell.figures->attention_error / texts;
      its.percent += percent_over(text, *cell.figures) / texts;
      ++its.texts;
    }
  }
  std::erase_if(means, [&](const auto& policy_and_means) {
    return policy_and_means.second.texts < study.texts.size();
  });
  return means;
}

std::vector<std::string> budgets_of(const QualityStudy& study) {
  std::vector<std::string> budgets;
  for (const QualityCell& cell : study.texts.front().cells) {
    if (std::ranges::find(budgets, cell.budget) == budgets.end()) budgets.push_back(cell.budget);
  }
  return budgets;
}

}  // namespace

double percent_over(const TextQuality& text, const PolicyFigures& figures) {
  return 100 * figures.bits_delta->mean / text.full_bits;
}

std::vector<BestPolicy> best_policies(const QualityStudy& study) {
  std::vector<BestPolicy> best;
  for (const std::string& budget : budgets_of(study)) {
    const std::map<std::string, PolicyMeans> means = means_by_policy(study, budget);
    const auto least = std::ranges::min_element(
        means, {}, [](const auto& policy_and_means) { return policy_and_means.second.error; });
    if (least == means.end()) continue;
    const auto& [policy, its] = *least;
    best.push_back(
        {.budget = budget, .policy = policy, .error = its.error, .percent = its.percent});
  }
  return best;
}

}  // namespace terrace::apps
