#include "terrace/offload/host_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "mapped_region.hpp"
#include "region_pool.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::offload {

class HostMemory::State final : public RegionSource {
 public:
  State(const HostMemoryOptions& options, std::optional<Topology> topology)
      : options_(options), topology_(std::move(topology)), pool_(*this, MappedRegion::alignment) {}

  RegionPool& pool() noexcept { return pool_; }

  bool holds(std::span<const std::byte> range) const { return pool_.holds(range); }
  HostMemoryReport report() const {
    HostMemoryReport report{.free_bytes = pool_.free_bytes()};
    if (options_.parallel != nullptr) report.touch_threads = options_.parallel->concurrency();
    const std::scoped_lock lock(mutex_);
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
  Result<std::span<std::byte>> map(std::size_t bytes) override {
    TERRACE_ASSIGN(MappedRegion region,
                   MappedRegion::map(std::max(bytes, options_.region_bytes), options_,
                                     topology_ ? &*topology_ : nullptr));
    const std::span<std::byte> range = region.range();
    if (options_.pinner != nullptr) TERRACE_TRY(options_.pinner->pin(range));
    const std::scoped_lock lock(mutex_);
    regions_.emplace(range.data(), std::move(region));
    return range;
  }

  void unmap(std::span<std::byte> region) noexcept override {
    if (options_.pinner != nullptr) options_.pinner->unpin(region);
    const std::scoped_lock lock(mutex_);
    regions_.erase(region.data());
  }

  HostMemoryOptions options_;
  std::optional<Topology> topology_;
  mutable std::mutex mutex_;  ///< guards regions_
  std::map<std::byte*, MappedRegion> regions_;
  RegionPool pool_;
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
  return state_->pool().allocate(bytes, alignment);
}
void HostMemory::release(std::byte* data, std::size_t bytes) noexcept {
  state_->pool().release(data, bytes);
}
Status HostMemory::reserve(std::size_t bytes) { return state_->pool().grow(bytes); }
std::size_t HostMemory::trim() noexcept { return state_->pool().trim(); }
HostMemoryReport HostMemory::report() const { return state_->report(); }

bool HostMemory::holds(std::span<const std::byte> range) const { return state_->holds(range); }

}  // namespace terrace::offload
