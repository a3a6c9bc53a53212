#include "terrace/offload/host_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "free_ranges.hpp"
#include "mapped_region.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t granularity = 64;  // a cache line: two owners never share one

}  // namespace

class HostMemory::State {
 public:
  State(const HostMemoryOptions& options, std::optional<Topology> topology)
      : options_(options), topology_(std::move(topology)) {}

  Result<std::byte*> allocate(std::size_t bytes, std::size_t alignment) {
    const std::size_t rounded = align_up(bytes, granularity);
    const std::size_t aligned = std::max(alignment, granularity);
    if (rounded < bytes) return fail(Errc::out_of_memory, "cannot map {} bytes", bytes);
    const std::scoped_lock lock(mutex_);
    if (std::byte* const data = free_.take(rounded, aligned)) return data;
    TERRACE_TRY(grow(rounded, aligned));
    std::byte* const data = free_.take(rounded, aligned);
    TERRACE_ASSERT(data != nullptr);
    return data;
  }

  void release(std::byte* data, std::size_t bytes) noexcept {
    const std::scoped_lock lock(mutex_);
    const MappedRegion& region = std::prev(regions_.upper_bound(data))->second;
    free_.put(data, align_up(bytes, granularity), region.range());
  }

  std::size_t trim() noexcept {
    const std::scoped_lock lock(mutex_);
    std::size_t unmapped = 0;
    std::erase_if(regions_, [&](const auto& entry) {
      const std::span<std::byte> range = entry.second.range();
      if (!free_.remove_whole(range)) return false;
      unmapped += range.size();
      return true;
    });
    return unmapped;
  }

  HostMemoryReport report() const {
    const std::scoped_lock lock(mutex_);
    HostMemoryReport report{.free_bytes = free_.bytes()};
    for (const auto& [base, region] : regions_) {
      const std::size_t bytes = region.range().size();
      report.mapped_bytes += bytes;
      report.huge_page_bytes += region.huge_pages() ? bytes : 0;
      report.locked_bytes += region.locked() ? bytes : 0;
      report.placed_bytes += region.placed() ? bytes : 0;
    }
    return report;
  }

 private:
  Status grow(std::size_t bytes, std::size_t alignment) {
    // Mappings begin on a huge page, so a larger alignment needs room to slide.
    const std::size_t slack = alignment > MappedRegion::alignment ? alignment : 0;
    TERRACE_ASSIGN(MappedRegion region,
                   MappedRegion::map(std::max(bytes + slack, options_.region_bytes), options_,
                                     topology_ ? &*topology_ : nullptr));
    const std::span<std::byte> range = region.range();
    regions_.emplace(range.data(), std::move(region));
    free_.put(range.data(), range.size(), range);
    return {};
  }

  HostMemoryOptions options_;
  std::optional<Topology> topology_;
  mutable std::mutex mutex_;
  std::map<std::byte*, MappedRegion> regions_;
  FreeRanges free_;
};

HostMemory::HostMemory(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HostMemory::~HostMemory() = default;

Result<std::unique_ptr<HostMemory>> HostMemory::create(const HostMemoryOptions& options) {
  std::optional<Topology> topology;
  if (options.numa_node) {
    TERRACE_ASSIGN(topology, Topology::discover());
    const bool known = std::ranges::any_of(
        topology->nodes(), [&](const NumaNode& node) { return node.index == *options.numa_node; });
    if (!known) {
      return fail(Errc::invalid_argument, "no NUMA node {}; this machine has {}",
                  *options.numa_node, topology->nodes().size());
    }
  }
  return std::unique_ptr<HostMemory>(
      new HostMemory(std::make_unique<State>(options, std::move(topology))));
}

Result<std::byte*> HostMemory::allocate(std::size_t bytes, std::size_t alignment) {
  return state_->allocate(bytes, alignment);
}
void HostMemory::release(std::byte* data, std::size_t bytes) noexcept {
  state_->release(data, bytes);
}
std::size_t HostMemory::trim() noexcept { return state_->trim(); }
HostMemoryReport HostMemory::report() const { return state_->report(); }

}  // namespace terrace::offload
