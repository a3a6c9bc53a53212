// One mapping of host memory, with what the system allowed for it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "terrace/core/result.hpp"
#include "terrace/offload/host_memory.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::offload {

class MappedRegion {
 public:
  static constexpr std::size_t alignment = std::size_t{2} << 20;  ///< a huge page on x86-64

  /// Maps at least `bytes`. `topology` may be null when options name no NUMA node.
  [[nodiscard]] static Result<MappedRegion> map(std::size_t bytes, const HostMemoryOptions& options,
                                                const Topology* topology);

  MappedRegion(MappedRegion&& other) noexcept
      : range_(std::exchange(other.range_, {})),
        huge_pages_(other.huge_pages_),
        locked_(other.locked_),
        placed_(other.placed_) {}
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion();

  [[nodiscard]] std::span<std::byte> range() const noexcept { return range_; }
  [[nodiscard]] bool huge_pages() const noexcept { return huge_pages_; }
  [[nodiscard]] bool locked() const noexcept { return locked_; }
  [[nodiscard]] bool placed() const noexcept { return placed_; }

 private:
  explicit MappedRegion(std::span<std::byte> range) noexcept : range_(range) {}

  std::span<std::byte> range_;
  bool huge_pages_ = false;
  bool locked_ = false;
  bool placed_ = false;
};

}  // namespace terrace::offload
