#include "terrace/core/retrieval.hpp"

#include <algorithm>
#include <vector>

namespace terrace {

Result<BuildReport> RetrievalPolicy::build(const BuildRequest& request, Parallel& threads) const {
  std::vector<Result<BuildReport>> reports(build_parts(request));
  threads.for_each(reports.size(),
                   [&](std::size_t part) { reports[part] = build_part(request, part); });
  BuildReport whole;
  for (const Result<BuildReport>& part : reports) {
    if (!part) return part;
    whole.iterations = std::max(whole.iterations, part->iterations);
  }
  return whole;
}

Result<std::size_t> RetrievalPolicy::build_some(const BuildRequest& request,
                                                std::size_t next) const {
  const std::size_t parts = build_parts(request);
  while (next < parts) {
    TERRACE_TRY(build_part(request, next));
    ++next;
    if (request.clock != nullptr && request.clock->now() >= request.deadline) break;
  }
  return next;
}

}  // namespace terrace
