#include "terrace/core/retrieval.hpp"

#include <algorithm>
#include <vector>

namespace terrace {

Result<BuildReport> IndexPart::finish() {
  for (bool done = false; !done;) {
    TERRACE_ASSIGN(done, do_piece());
  }
  return report();
}

Result<BuildReport> RetrievalPolicy::build(const BuildRequest& request, Parallel& threads) const {
  std::vector<Result<BuildReport>> reports(build_parts(request));
  threads.for_each(reports.size(),
                   [&](std::size_t part) { reports[part] = begin_part(request, part)->finish(); });
  BuildReport whole;
  for (const Result<BuildReport>& part : reports) {
    if (!part) return part;
    whole.iterations = std::max(whole.iterations, part->iterations);
  }
  return whole;
}

Result<bool> RetrievalPolicy::build_some(const BuildRequest& request, IndexProgress& progress,
                                         TimePoint until) const {
  const std::size_t parts = build_parts(request);
  while (progress.parts_done < parts) {
    if (progress.part == nullptr) progress.part = begin_part(request, progress.parts_done);
    TERRACE_ASSIGN(const bool done, progress.part->do_piece());
    if (done) {
      progress.part.reset();
      ++progress.parts_done;
    }
    if (request.clock->now() >= until) break;
  }
  return progress.parts_done == parts;
}

}  // namespace terrace
