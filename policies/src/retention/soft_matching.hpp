// Chunked soft matching: merges entries whose keys are alike, in time that grows with their number
// and not with its square.
//
// Source: Chelsea (CentroidKV), arXiv 2506.11418, which brings the bipartite matching of ToMe into
// chunks. In each chunk every second entry looks among the remaining entries for the nearest key by
// cosine; of all these edges the most alike are merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/retention.hpp"

namespace terrace::policies {

/// Merges the candidates in `which`, which rise, until no more than `entries` groups are left:
/// half of them at most at a time, then with the means that this gave. Returns the groups, each by
/// rising candidates. `chunk`: entries of a chunk, at least 2; 0 = all in one.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> match_softly(
    const KvShape& shape, const Candidates& candidates, std::span<const std::uint32_t> which,
    std::size_t entries, std::size_t chunk);

/// Returns how alike the edges are that the first call of matching finds among all candidates, most
/// alike first: cosines, one of every other candidate.
[[nodiscard]] std::vector<float> edge_likeness(const KvShape& shape, const Candidates& candidates,
                                               std::size_t chunk);

}  // namespace terrace::policies
