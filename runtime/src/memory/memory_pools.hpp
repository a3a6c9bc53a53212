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
  /// For rows that are cached without their blocks: given up, they leave none of it behind.
  std::unique_ptr<BlockPool> cached_row_blocks;
  StepMemoryPool steps = {};

  /// Device memory that is held for blocks, in use or not.
  [[nodiscard]] std::size_t reserved_bytes() const noexcept {
    return blocks->reserved_bytes() + cached_row_blocks->reserved_bytes();
  }
  /// Gives what nobody uses back to the backend. Returns whether there was any.
  bool trim() noexcept {
    const bool of_steps = steps.release();
    const bool of_rows = blocks->trim();
    return cached_row_blocks->trim() || of_rows || of_steps;
  }
};

}  // namespace terrace
