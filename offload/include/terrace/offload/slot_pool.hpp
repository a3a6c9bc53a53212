// Fixed-size pieces of a backend's memory, cut from slabs.
//
//   auto pool = SlotPool::create(backend, {.slot_bytes = block_bytes, .purpose = Purpose::cache});
//   std::byte* slot = pool->allocate().value();
//   ...
//   pool->release(slot);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "terrace/core/backend.hpp"

namespace terrace::offload {

struct SlotPoolOptions {
  std::size_t slot_bytes = 0;
  std::size_t alignment = 64;                      ///< of each slot; a power of two
  std::size_t slab_bytes = std::size_t{32} << 20;  ///< wanted size of a slab
  Tier tier = Tier::device;
  Purpose purpose = Purpose::cache;
};

/// Threads  one thread at a time. The backend must outlive it; slots die with it
class SlotPool {
 public:
  /// Errors: invalid_argument for zero bytes or an alignment that is no power of two.
  [[nodiscard]] static Result<SlotPool> create(Backend& backend, const SlotPoolOptions& options);
  SlotPool(SlotPool&&) noexcept = default;
  SlotPool& operator=(SlotPool&&) noexcept = default;

  /// Returns a slot, from a new slab when all are taken. Where a whole slab does not fit under the
  /// tier's limit, smaller ones are tried, down to one slot.
  ///
  /// Cost     O(1) and no allocation while a slab has room
  /// Errors   out_of_memory: not even one slot fits
  [[nodiscard]] Result<std::byte*> allocate();

  /// Makes a slab unless so many slots are free, and returns whether it did: false, too, where the
  /// memory has no room for one. After calls until it returns false, allocate() returns so many
  /// slots without a wait.
  bool reserve_more(std::size_t slots);

  /// Takes a slot back. Cost: O(log slabs), no allocation.
  void release(std::byte* slot) noexcept;

  /// Gives empty slabs back to the backend; returns their bytes.
  std::size_t trim() noexcept;

  [[nodiscard]] std::size_t slots_in_use() const noexcept { return in_use_; }
  [[nodiscard]] std::size_t free_slots() const noexcept;
  [[nodiscard]] std::size_t slab_count() const noexcept { return slabs_.size(); }
  /// Memory of all slabs.
  [[nodiscard]] std::size_t reserved_bytes() const noexcept;
  /// Distance of neighbouring slots: slot_bytes rounded up to the alignment.
  [[nodiscard]] std::size_t stride_bytes() const noexcept { return stride_; }

 private:
  struct Slab {
    Buffer memory;
    std::vector<std::uint32_t> free;  ///< slot numbers; capacity for all
    std::vector<bool> taken;
  };

  SlotPool(Backend& backend, const SlotPoolOptions& options) noexcept;
  Status grow();
  Slab& slab_of(const std::byte* slot) noexcept;

  Backend* backend_;
  SlotPoolOptions options_;
  std::size_t stride_;
  std::size_t in_use_ = 0;
  std::vector<std::unique_ptr<Slab>> slabs_;  ///< by address
  std::vector<Slab*> open_;                   ///< with free slots; the last one serves
};

}  // namespace terrace::offload
