#include "terrace/policies/settings_text.hpp"

#include <fmt/core.h>

namespace terrace::policies {
namespace {

template <typename Enum>
int number(Enum value) noexcept {
  return static_cast<int>(value);
}

}  // namespace

// Bindings name each member, so that a new setting does not compile until it is in the line.
std::string settings_text(const RetrievalOptions& options) {
  const auto& [refine, estimates, pq, qpq, quest, infllm, sparq, infinigen, clusterkv, wave, signs,
               reduction] = options;
  const auto& [refine_bits, refine_factor] = refine;
  const auto& [estimate_tokens, estimates_in_budget] = estimates;
  const auto& [subspaces, pq_bits] = pq;
  const auto& [shrinkage] = qpq;
  const auto& [page_tokens] = quest;
  const auto& [infllm_tokens, representatives] = infllm;
  const auto& [channels] = sparq;
  const auto& [ratio] = infinigen;
  const auto& [clusterkv_tokens, lists] = clusterkv;
  const auto& [wave_tokens, segment_tokens, metric, ranking, estimated_share, spreads] = wave;
  const auto& [signs_tokens, sign_estimates] = signs;
  return fmt::format(
      "refine {} {}; estimates {} {}; pq {} {}; qpq {}; quest {}; infllm {} {}; sparq {}; "
      "infinigen {}; clusterkv {} {}; wave {} {} {} {} {} {}; signs {} {}; reduction {}",
      refine_bits, refine_factor, estimate_tokens, estimates_in_budget, subspaces, pq_bits,
      shrinkage, page_tokens, infllm_tokens, representatives, channels, ratio, clusterkv_tokens,
      number(lists), wave_tokens, segment_tokens, number(metric), number(ranking), estimated_share,
      spreads, signs_tokens, number(sign_estimates), number(reduction));
}

}  // namespace terrace::policies
