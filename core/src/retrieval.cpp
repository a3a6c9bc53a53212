#include "terrace/core/retrieval.hpp"

#include <algorithm>
#include <new>
#include <vector>

#include "terrace/core/assert.hpp"

namespace terrace {
namespace {

/// Does a piece of a build, which allocates as it goes: out of a thread that does parts for others
/// nothing may be thrown.
template <typename Work>
auto catching_bad_alloc(const RetrievalPolicy& policy, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(Errc::out_of_memory,
                "policy {}: the host has no memory left to build an index: close a sequence, or "
                "lower host.memory or threads.host",
                policy.traits().name);
  }
}

}  // namespace

Result<BuildReport> RetrievalPolicy::build(const BuildRequest& request, Parallel& threads) const {
  std::vector<Result<BuildReport>> reports(build_parts(request));
  threads.for_each(reports.size(), [&](std::size_t part) {
    reports[part] = catching_bad_alloc(*this, [&] { return build_part(request, part); });
  });
  BuildReport whole;
  for (const Result<BuildReport>& part : reports) {
    if (!part) return part;
    whole.iterations = std::max(whole.iterations, part->iterations);
    whole.mean_iterations += static_cast<double>(part->iterations);
  }
  whole.mean_iterations /= static_cast<double>(std::max<std::size_t>(1, reports.size()));
  return whole;
}

Result<bool> RetrievalPolicy::cut(const BuildRequest& request) const {
  return catching_bad_alloc(*this, [&] { return do_cut(request); });
}

}  // namespace terrace
