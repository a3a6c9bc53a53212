// Memory cut into aligned ranges by best fit, from regions that a source gives.
//
// Nothing is written to the memory itself: it may be a device's. It counts no limits.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>

#include "free_ranges.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Where regions come from.
///
/// Threads  map from any thread, several at once; unmap of a region by one
class RegionSource {
 public:
  RegionSource() = default;
  RegionSource(const RegionSource&) = delete;
  RegionSource& operator=(const RegionSource&) = delete;
  virtual ~RegionSource() = default;

  /// Gives a region of at least `bytes`, aligned to a page at least.
  [[nodiscard]] virtual Result<std::span<std::byte>> map(std::size_t bytes) = 0;
  virtual void unmap(std::span<std::byte> region) noexcept = 0;
};

/// Threads  safe from any thread; mapping does not delay a thread that finds a free range
class RegionPool {
 public:
  /// A region begins on a multiple of `region_alignment`.
  RegionPool(RegionSource& source, std::size_t region_alignment) noexcept
      : source_(source), region_alignment_(region_alignment) {}
  RegionPool(const RegionPool&) = delete;
  RegionPool& operator=(const RegionPool&) = delete;
  ~RegionPool();

  /// Errors   those of the source, when no free range fits
  [[nodiscard]] Result<std::byte*> allocate(std::size_t bytes, std::size_t alignment);

  /// Takes back a range; neighbours that are free become one.
  void release(std::byte* data, std::size_t bytes) noexcept;

  /// Maps one more region. Errors: those of the source.
  [[nodiscard]] Status grow(std::size_t bytes);

  /// Gives back regions that hold no allocation; returns their bytes.
  std::size_t trim() noexcept;

  [[nodiscard]] std::size_t free_bytes() const;

  /// Returns whether `range` lies in one of the regions.
  [[nodiscard]] bool holds(std::span<const std::byte> range) const;

 private:
  RegionSource& source_;
  std::size_t region_alignment_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::span<std::byte>> regions_;
  FreeRanges<std::byte*> free_;
};

}  // namespace terrace::offload
