// The resident cache of one layer: copies of rows of the middle that stay in device memory.
// Dropping any of them changes no output. Four kinds: none, blocks, clusters, rows.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {

/// Threads  one at a time
class LayerCache {
 public:
  LayerCache() = default;
  LayerCache(const LayerCache&) = delete;
  LayerCache& operator=(const LayerCache&) = delete;
  virtual ~LayerCache() = default;

  // Room.

  /// Makes room for what is kept of a sequence of `length` tokens, `slots` slots at most.
  /// Errors: those of options and queues. Short memory is no error: the layer keeps less then.
  virtual Status reserve(std::size_t /*slots*/, std::size_t /*length*/) { return {}; }
  /// Keeps so many slots at most from now on. Changes must have been awaited.
  virtual void resize(std::size_t /*slots*/) {}
  /// Memory of the layer's own that missed rows are fetched into. Errors: out_of_memory.
  virtual Status reserve_staging(std::size_t /*bytes*/) { return {}; }
  /// Null: the rows of all layers are fetched into one.
  [[nodiscard]] virtual std::byte* staging() const noexcept { return nullptr; }
  /// Blocks that filling the room for a sequence of `length` tokens would take from the pool of
  /// cached rows.
  [[nodiscard]] virtual std::size_t missing_blocks(std::size_t /*length*/) const { return 0; }

  // A step.

  /// Changes that the last step decided take effect for what is enqueued on `compute` from now on.
  virtual Status publish(Queue& /*compute*/) { return {}; }
  [[nodiscard]] virtual CachedRows rows() const noexcept { return {}; }
  /// The slots of these rows that resolving a selection fills by itself.
  [[nodiscard]] virtual RowSlots slots() const noexcept { return {}; }
  /// Counts what the layer's selection wanted, as the host has it now; decides what to keep and
  /// what to give up for it, and begins to copy.
  virtual Status take_step() { return {}; }
  /// Counts alone: other tokens of the same step follow, and the last token's selection decides.
  virtual void count_token() {}
  /// Begins to copy what needs rows from the host, beside compute.
  virtual Status send_changes() { return {}; }
  /// Makes all changes and waits for them. Between steps.
  virtual Status await_changes() { return {}; }
  /// Whether changes under way read the table of host pages.
  [[nodiscard]] virtual bool reads_host_table() const noexcept { return false; }

  // Blocks.

  [[nodiscard]] virtual bool keeps_blocks() const noexcept { return false; }
  /// Takes over a resident block that has left the window. Returns whether it did.
  virtual bool adopt_block(std::size_t /*block*/) { return false; }
  /// The copy that a cached block is will be gone, or is no copy any more.
  virtual void forget_block(std::size_t /*block*/) {}

  // Giving up.

  /// Drops refills under way, clusters and rows: what a cut or a failure may have made wrong.
  virtual void drop_unsettled() {}
  /// Drops a share of what is kept, chosen by `rng`.
  virtual void drop_some(double /*share*/, Rng& /*rng*/) {}
  /// Drops what the device's memory is short of. Returns whether any came free.
  virtual bool spill() { return false; }
  virtual void give_up_device_memory() {}
};

}  // namespace terrace
