// Host memory for pools: mapped regions, on huge pages and on a NUMA node where the system allows
// it, cut into aligned ranges by best fit.
//
//   auto memory = HostMemory::create({.huge_pages = HugePages::automatic, .parallel = &threads});
//   std::byte* rows = (*memory)->allocate(bytes, 4096).value();
//   ...
//   (*memory)->release(rows, bytes);
//
// It counts no limits: MemoryLedger does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// automatic: asked for, done without where refused; on: an error where refused; off: not asked.
enum class HugePages : std::uint8_t { automatic, on, off };

/// Locks mapped memory for a device, a region at a time.
///
/// Threads  from any thread, several at once
class MemoryPinner {
 public:
  MemoryPinner() = default;
  MemoryPinner(const MemoryPinner&) = delete;
  MemoryPinner& operator=(const MemoryPinner&) = delete;
  virtual ~MemoryPinner() = default;

  /// Locks pages that are mapped and touched. Errors: out_of_memory; nothing is locked then.
  [[nodiscard]] virtual Status pin(std::span<std::byte> region) = 0;
  virtual void unpin(std::span<std::byte> region) noexcept = 0;
};

/// `parallel` and `pinner` must outlive the memory.
struct HostMemoryOptions {
  HugePages huge_pages = HugePages::automatic;
  std::optional<std::uint32_t> numa_node{};  ///< where pages go; none = the first touch decides
  bool lock = false;                         ///< try mlock; the report says what it got
  std::size_t region_bytes = std::size_t{2} << 20;  ///< smallest region; larger ones as asked for
  Parallel* parallel = nullptr;                     ///< touches pages; null = the caller's thread
  MemoryPinner* pinner = nullptr;                   ///< null = memory is not locked for a device
};

/// Memory as the system granted it. Bytes of regions mapped now.
struct HostMemoryReport {
  std::size_t mapped_bytes = 0;
  std::size_t huge_page_bytes = 0;  ///< where madvise accepted huge pages
  std::size_t locked_bytes = 0;
  std::size_t placed_bytes = 0;   ///< on the node asked for
  std::size_t free_bytes = 0;     ///< mapped and not allocated
  std::size_t touch_threads = 1;  ///< that fault pages in
};

/// Threads  safe from any thread
class HostMemory {
 public:
  /// Errors: invalid_argument for a NUMA node that is not there.
  [[nodiscard]] static Result<std::unique_ptr<HostMemory>> create(const HostMemoryOptions& options);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  /// Returns `bytes` aligned to `alignment` (a power of two), not initialised.
  ///
  /// Cost     O(log ranges), plus mapping and touching a region when no free range fits
  /// Errors   out_of_memory: the system has no more; unsupported: huge pages insisted on, refused
  [[nodiscard]] Result<std::byte*> allocate(std::size_t bytes, std::size_t alignment);

  /// Maps and touches a region of at least `bytes` ahead of its use.
  [[nodiscard]] Status reserve(std::size_t bytes);

  /// Takes back a range; neighbours that are free become one.
  void release(std::byte* data, std::size_t bytes) noexcept;

  /// Unmaps regions that hold no allocation; returns their bytes.
  std::size_t trim() noexcept;

  [[nodiscard]] HostMemoryReport report() const;

  /// Returns whether `range` lies in a region that is mapped.
  [[nodiscard]] bool holds(std::span<const std::byte> range) const;

 private:
  class State;
  explicit HostMemory(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace terrace::offload
