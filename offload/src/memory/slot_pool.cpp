#include "terrace/offload/slot_pool.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {

Result<SlotPool> SlotPool::create(Backend& backend, const SlotPoolOptions& options) {
  if (options.slot_bytes == 0 || !std::has_single_bit(options.alignment)) {
    return fail(Errc::invalid_argument, "slots of {} bytes aligned to {} cannot be",
                options.slot_bytes, options.alignment);
  }
  return SlotPool(backend, options);
}

SlotPool::SlotPool(Backend& backend, const SlotPoolOptions& options) noexcept
    : backend_(&backend),
      options_(options),
      stride_(align_up(options.slot_bytes, options.alignment)) {}

Result<std::byte*> SlotPool::allocate() {
  if (open_.empty()) TERRACE_TRY(grow());
  Slab& slab = *open_.back();
  const std::uint32_t slot = slab.free.back();
  slab.free.pop_back();
  slab.taken[slot] = true;
  if (slab.free.empty()) open_.pop_back();
  ++in_use_;
  return slab.memory.data() + slot * stride_;
}

bool SlotPool::reserve_more(std::size_t slots) { return free_slots() < slots && grow(); }

std::size_t SlotPool::free_slots() const noexcept {
  std::size_t slots = 0;
  for (const Slab* slab : open_) slots += slab->free.size();
  return slots;
}

Status SlotPool::grow() {
  constexpr std::size_t slots_max = std::numeric_limits<std::uint32_t>::max();
  std::size_t slots = std::clamp(options_.slab_bytes / stride_, std::size_t{1}, slots_max);
  AllocationRequest request{.bytes = slots * stride_,
                            .alignment = options_.alignment,
                            .tier = options_.tier,
                            .purpose = options_.purpose};
  Result<Buffer> memory = backend_->allocate(request);
  while (!memory && memory.error().code == Errc::out_of_memory && slots > 1) {
    slots /= 2;
    request.bytes = slots * stride_;
    memory = backend_->allocate(request);
  }
  if (!memory) return tl::unexpected(memory.error());

  auto slab = std::make_unique<Slab>();
  slab->memory = std::move(*memory);
  slab->taken.resize(slots);
  slab->free.resize(slots);
  // Low addresses first: the last number is taken first.
  for (std::size_t i = 0; i < slots; ++i) slab->free[i] = static_cast<std::uint32_t>(slots - 1 - i);
  open_.reserve(slabs_.size() + 1);
  open_.push_back(slab.get());
  const auto place = std::ranges::upper_bound(slabs_, slab->memory.data(), std::less<>{},
                                              [](const auto& each) { return each->memory.data(); });
  slabs_.insert(place, std::move(slab));
  return {};
}

SlotPool::Slab& SlotPool::slab_of(const std::byte* slot) noexcept {
  const auto after = std::ranges::upper_bound(slabs_, slot, std::less<>{},
                                              [](const auto& each) { return each->memory.data(); });
  TERRACE_ASSERT(after != slabs_.begin());
  return **std::prev(after);
}

void SlotPool::release(std::byte* slot) noexcept {
  Slab& slab = slab_of(slot);
  const auto offset = static_cast<std::size_t>(slot - slab.memory.data());
  const std::size_t number = offset / stride_;
  TERRACE_ASSERT(offset % stride_ == 0 && number < slab.taken.size() && slab.taken[number]);
  slab.taken[number] = false;
  if (slab.free.empty()) open_.push_back(&slab);
  slab.free.push_back(static_cast<std::uint32_t>(number));
  --in_use_;
}

std::size_t SlotPool::reserved_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto& slab : slabs_) bytes += slab->memory.bytes();
  return bytes;
}

std::size_t SlotPool::trim() noexcept {
  const auto empty = [](const Slab& slab) { return slab.free.size() == slab.taken.size(); };
  std::size_t bytes = 0;
  std::erase_if(open_, [&](const Slab* slab) { return empty(*slab); });
  std::erase_if(slabs_, [&](const std::unique_ptr<Slab>& slab) {
    if (!empty(*slab)) return false;
    bytes += slab->memory.bytes();
    return true;
  });
  return bytes;
}

}  // namespace terrace::offload
