// The indexes of a sequence as parts of a chunk: one with what is known of each layer's index, and
// the bytes of each.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layer/layer.hpp"
#include "terrace/tiers/chunk_lease.hpp"
#include "terrace/tiers/chunk_store.hpp"

namespace terrace {

/// Returns the settings that indexes depend on, as a text: indexes with another text are no use.
[[nodiscard]] std::string index_identity(const RuntimePlan& plan);

/// Returns the parts. Nothing is being coded, and no coding is lost.
[[nodiscard]] std::vector<tiers::PartBytes> write_indexes(
    const IndexLayout& layout, std::span<const std::unique_ptr<Layer>> layers);

/// The place that saved indexes have to fit.
struct IndexTarget {
  Backend& backend;  ///< of their memory
  const IndexLayout& layout;
  std::size_t length = 0;  ///< of the sequence
};

/// Has layers, which have no index, take over the indexes that were written. All layers have theirs
/// then, or none.
///
/// Errors   corrupt: other bytes, or indexes of another shape; out_of_memory; those of the store
[[nodiscard]] Status read_indexes(tiers::HeldChunks& chunks, const tiers::Manifest& manifest,
                                  const IndexTarget& target,
                                  std::span<const std::unique_ptr<Layer>> layers);

}  // namespace terrace
