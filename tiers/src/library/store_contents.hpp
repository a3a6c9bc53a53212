// The chunks that a store has, found by the keys of its pages alone.
#pragma once

#include <span>
#include <vector>

#include "terrace/offload/store_calls.hpp"
#include "terrace/tiers/manifest.hpp"

namespace terrace::tiers {

struct StoreContents {
  std::vector<Manifest> chunks;  ///< that have all of their parts, each of its size
  std::vector<PageKey> rest;     ///< pages of no such chunk
};

/// Reads the manifests among pages. A page is the manifest of a chunk if its key is the manifest's
/// of that chunk, and its bytes are.
///
/// Cost     reads pages that may be manifests by their size, those of few bytes first; pages that a
///          manifest names are not read
/// Errors   not_ready past the deadline of a batch
[[nodiscard]] Result<StoreContents> read_contents(offload::StoreCalls& calls,
                                                  std::span<const PageKey> pages);

}  // namespace terrace::tiers
