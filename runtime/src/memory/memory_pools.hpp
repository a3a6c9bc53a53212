// The pools of memory that the sequences and steps of a runtime share.
#pragma once

#include <cstddef>
#include <memory>

#include "block_pool.hpp"
#include "step_memory_pool.hpp"

namespace terrace {

/// Threads  safe from any thread
struct MemoryPools {
  std::unique_ptr<BlockPool> blocks;  ///< of device memory, for rows
  /// For cached clusters: given up, they leave none of it behind.
  std::unique_ptr<BlockPool> cluster_blocks;
  StepMemoryPool steps = {};

  /// Device memory that is held for blocks, in use or not.
  [[nodiscard]] std::size_t reserved_bytes() const noexcept {
    return blocks->reserved_bytes() + cluster_blocks->reserved_bytes();
  }
  /// Gives what nobody uses back to the backend. Returns whether there was any.
  bool trim() noexcept {
    const bool of_steps = steps.release();
    const bool of_rows = blocks->trim();
    return cluster_blocks->trim() || of_rows || of_steps;
  }
};

}  // namespace terrace
