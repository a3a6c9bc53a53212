#include "block_pool.hpp"

#include "terrace/runtime/options.hpp"

namespace terrace {

Result<std::unique_ptr<BlockPool>> BlockPool::create(Backend& backend, std::size_t block_bytes) {
  TERRACE_ASSIGN(auto slots,
                 offload::SlotPool::create(backend, {.slot_bytes = block_bytes,
                                                     .slab_bytes = slab_blocks * block_bytes,
                                                     .purpose = Purpose::kv}));
  return std::unique_ptr<BlockPool>(new BlockPool(std::move(slots)));
}

Result<std::byte*> BlockPool::take() {
  const std::lock_guard lock(mutex_);
  return slots_.allocate();
}

void BlockPool::give(std::byte* block) noexcept {
  const std::lock_guard lock(mutex_);
  slots_.release(block);
}

void BlockPool::reserve(std::size_t count) {
  // Slab by slab: a caller that needs a block meanwhile does not wait for all slabs.
  const auto add_slab = [&] {
    const std::lock_guard lock(mutex_);
    return slots_.reserve_more(count);
  };
  while (add_slab()) continue;
}

bool BlockPool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  return slots_.trim() > 0;
}

std::size_t BlockPool::reserved_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return slots_.reserved_bytes();
}

}  // namespace terrace
