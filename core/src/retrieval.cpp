#include "terrace/core/retrieval.hpp"

#include <algorithm>
#include <new>
#include <vector>

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

Result<BuildReport> IndexPart::finish() {
  for (bool done = false; !done;) {
    TERRACE_ASSIGN(done, do_piece());
  }
  return report();
}

Result<BuildReport> RetrievalPolicy::build(const BuildRequest& request, Parallel& threads) const {
  std::vector<Result<BuildReport>> reports(build_parts(request));
  threads.for_each(reports.size(), [&](std::size_t part) {
    reports[part] = catching_bad_alloc(*this, [&] { return begin_part(request, part)->finish(); });
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

Result<bool> RetrievalPolicy::build_some(const BuildRequest& request, IndexProgress& progress,
                                         TimePoint until) const {
  const std::size_t parts = build_parts(request);
  TimePoint begin = request.clock->now();
  while (progress.parts_done < parts) {
    const auto do_piece = [&] {
      if (progress.part == nullptr) progress.part = begin_part(request, progress.parts_done);
      return progress.part->do_piece();
    };
    TERRACE_ASSIGN(const bool done, catching_bad_alloc(*this, do_piece));
    const TimePoint end = request.clock->now();
    // One that was held up by something else does not count for ever.
    progress.longest_piece =
        std::max(end - begin, progress.longest_piece - progress.longest_piece / 64);
    begin = end;
    const bool over = end >= until || end + progress.longest_piece > until;
    if (done) {
      progress.part.reset();
      ++progress.parts_done;
    }
    if (over) break;
  }
  return progress.parts_done == parts;
}

Result<bool> RetrievalPolicy::cut(const BuildRequest& request) const {
  return catching_bad_alloc(*this, [&] { return do_cut(request); });
}

}  // namespace terrace
