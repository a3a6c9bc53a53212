// Device blocks that the sequences of a runtime share.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "terrace/offload/slot_pool.hpp"

namespace terrace {

/// Threads  safe from any thread
class BlockPool {
 public:
  /// Errors: those of offload::SlotPool::create.
  static Result<std::unique_ptr<BlockPool>> create(Backend& backend, std::size_t block_bytes);

  /// Returns a block. Errors: out_of_memory naming the limit and what to do.
  Result<std::byte*> take();
  void give(std::byte* block) noexcept;

  /// Has memory for so many blocks ready, as far as there is any: mapping it takes longer than a
  /// step.
  void reserve(std::size_t count);
  /// Gives memory without blocks in use back to the backend. Returns whether there was any.
  bool trim() noexcept;
  /// Memory that is held for blocks, in use or not.
  [[nodiscard]] std::size_t reserved_bytes() const noexcept;

 private:
  explicit BlockPool(offload::SlotPool slots) noexcept : slots_(std::move(slots)) {}

  mutable std::mutex mutex_;
  offload::SlotPool slots_;
};

}  // namespace terrace
