// What a sequence knows of one of its layers: where its rows lie, its index, its cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cluster_units.hpp"
#include "layer_index.hpp"
#include "pointer_table.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/offload/host_pages.hpp"
#include "terrace/offload/resident_cache.hpp"

namespace terrace {

/// Why a block is in device memory.
enum class BlockPlace : std::uint8_t {
  absent,
  resident,  ///< sinks, window, or not yet spilled
  cached,    ///< a copy that the resident cache admitted
};

/// A refill under way; it takes effect when the next step of its layer begins.
struct ArrivingBlock {
  std::size_t block = 0;
  std::byte* slot = nullptr;
};

struct LayerState {
  LayerState(offload::HostPagePool& pool, const KvShape& shape, std::size_t block_tokens)
      : pages(pool), slots(shape, block_tokens) {}

  offload::PageTable pages;
  PointerTable host_blocks{Tier::host};
  PointerTable device_blocks{Tier::device};
  std::vector<BlockPlace> places;  ///< per block

  LayerIndex index;
  std::vector<float> pre_rope_keys;  ///< PromptHints that the policy asked for
  std::vector<float> query_window;
  std::vector<float> attention_scores;

  std::unique_ptr<offload::ResidentCache> cache;
  std::vector<ArrivingBlock> arriving;
  std::vector<std::byte*> spare_slots;  ///< of evicted blocks, for the next admissions

  // Where clusters are cached.
  Buffer staging;  ///< as StepBuffers::staging: read until what was missed is in its slots
  ClusterMembers members;
  ClusterSlots slots;
  bool members_stale = true;     ///< labels have changed since they were read
  bool clusters_renamed = true;  ///< since the last step: units' keys mean others now

  Buffer selection;                    ///< device: ids, counts, missed count (SelectionBuffers)
  Buffer selection_host;               ///< its host copy, for upkeep and for selection()
  bool selected = false;               ///< the last step of this layer selected something
  std::size_t first_window_block = 0;  ///< blocks before it have passed the window
  TokenRange sinks;                    ///< of the last step
  TokenRange window;

  Ticket offloaded;  ///< the newest rows, and selection_host, are on the host
  Ticket attended;   ///< last op of the last step
  Ticket refilled;   ///< arriving blocks are in their slots
};

/// Where the parts of LayerState::selection lie.
struct SelectionBuffers {
  std::uint32_t* ids = nullptr;
  std::uint32_t* counts = nullptr;
  std::uint32_t* missed_count = nullptr;
  std::uint32_t* pseudo_counts = nullptr;  ///< [lists]
};

}  // namespace terrace
