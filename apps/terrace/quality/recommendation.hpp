// The policy that a study of quality recommends.
#pragma once

#include <string>
#include <vector>

#include "quality/study.hpp"

namespace terrace::apps {

/// The policy that errs least within a budget: means over the study's texts.
struct BestPolicy {
  std::string budget;
  std::string policy;
  double error = 0;    ///< of attention's outputs; on few tokens, bits are mostly noise
  double percent = 0;  ///< bits over full attention's
};

/// Returns the best policy of each budget, in the study's order, rows counted. Policies that read
/// every key are no choice, nor those that lack figures of a text.
std::vector<BestPolicy> best_policies(const QualityStudy& study);

/// Returns the bits of a policy over full attention's, in percent.
double percent_over(const TextQuality& text, const PolicyFigures& figures);

}  // namespace terrace::apps
