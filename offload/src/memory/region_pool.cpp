#include "region_pool.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t granularity = 64;  // a cache line: two owners never share one

FreeRanges<std::byte*>::Region whole(std::span<std::byte> region) noexcept {
  return {region.data(), region.size()};
}

}  // namespace

RegionPool::~RegionPool() {
  for (const auto& [base, region] : regions_) source_.unmap(region);
}

Result<std::byte*> RegionPool::allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t rounded = align_up(bytes, granularity);
  const std::size_t aligned = std::max(alignment, granularity);
  if (rounded < bytes) return fail(Errc::out_of_memory, "cannot map {}", format_size(bytes));
  // A larger alignment than that of regions needs room to slide.
  const std::size_t slack = aligned > region_alignment_ ? aligned : 0;
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (const auto data = free_.take(rounded, aligned)) return *data;
    }
    // Another thread may take what is mapped here; then this one maps again.
    TERRACE_TRY(grow(rounded + slack));
  }
}

void RegionPool::release(std::byte* data, std::size_t bytes) noexcept {
  const std::scoped_lock lock(mutex_);
  const std::span<std::byte> region = std::prev(regions_.upper_bound(data))->second;
  free_.put(data, align_up(bytes, granularity), whole(region));
}

Status RegionPool::grow(std::size_t bytes) {
  TERRACE_ASSIGN(const std::span<std::byte> region, source_.map(bytes));
  const std::scoped_lock lock(mutex_);
  regions_.emplace(region.data(), region);
  free_.put(region.data(), region.size(), whole(region));
  return {};
}

std::size_t RegionPool::trim() noexcept {
  const std::scoped_lock lock(mutex_);
  std::size_t unmapped = 0;
  std::erase_if(regions_, [&](const auto& entry) {
    const std::span<std::byte> region = entry.second;
    if (!free_.remove_whole(whole(region))) return false;
    source_.unmap(region);
    unmapped += region.size();
    return true;
  });
  return unmapped;
}

std::size_t RegionPool::free_bytes() const {
  const std::scoped_lock lock(mutex_);
  return free_.bytes();
}

bool RegionPool::holds(std::span<const std::byte> range) const {
  const std::scoped_lock lock(mutex_);
  const auto behind = regions_.upper_bound(range.data());
  if (behind == regions_.begin()) return false;
  const std::span<std::byte> region = std::prev(behind)->second;
  return range.data() + range.size() <= region.data() + region.size();
}

}  // namespace terrace::offload
