#include "pointer_table.hpp"

#include <algorithm>
#include <numeric>

namespace terrace {

Status PointerTable::reserve(Backend& backend, std::size_t count) {
  if (count > capacity_) TERRACE_TRY(grow(backend, count));
  // New entries are null on the device, too. The entries behind them are not copied, so that a copy
  // under way reads no entry that is set for the first time.
  for (; size_ < count; ++size_) set(size_, nullptr);
  return {};
}

Status PointerTable::grow(Backend& backend, std::size_t count) {
  const std::size_t capacity = room_for(count);
  AllocationRequest request{.bytes = capacity * sizeof(std::byte*), .tier = Tier::host};
  TERRACE_ASSIGN(Buffer host, backend.allocate(request));
  Buffer device;
  if (tier_ == Tier::device) {
    request.tier = Tier::device;
    TERRACE_ASSIGN(device, backend.allocate(request));
  }
  auto* entries = host.as<std::byte*>();
  std::copy_n(host_.as<std::byte*>(), size_, entries);
  std::fill(entries + size_, entries + capacity, nullptr);
  if (host_) old_.push_back(std::move(host_));
  host_ = std::move(host);
  device_ = std::move(device);
  capacity_ = capacity;
  touch_all();
  return {};
}

void PointerTable::touch_all() {
  if (tier_ == Tier::host) return;
  changed_.resize(size_);
  std::iota(changed_.begin(), changed_.end(), 0U);
}

void PointerTable::set(std::size_t i, std::byte* pointer) {
  host_.as<std::byte*>()[i] = pointer;
  if (tier_ == Tier::device) changed_.push_back(static_cast<std::uint32_t>(i));
}

Result<Ticket> PointerTable::flush(Queue& queue) {
  if (changed_.empty()) return Ticket{};
  std::sort(changed_.begin(), changed_.end());
  extents_.clear();
  std::size_t end = 0;  // one past the last entry covered
  for (const std::uint32_t i : changed_) {
    if (i < end && !extents_.empty()) continue;
    const std::size_t at = i * sizeof(std::byte*);
    if (i == end && !extents_.empty()) {
      extents_.back().bytes += sizeof(std::byte*);
    } else {
      extents_.push_back({device_.data() + at, host_.data() + at, sizeof(std::byte*)});
    }
    end = std::size_t{i} + 1;
  }
  TERRACE_ASSIGN(const Ticket done, queue.copy(Phase::update, extents_));
  changed_.clear();
  return done;
}

void PointerTable::reset() noexcept {
  host_.reset();
  device_.reset();
  old_.clear();
  size_ = capacity_ = 0;
  changed_.clear();
}

}  // namespace terrace
