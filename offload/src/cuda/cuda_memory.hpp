// Where the regions of the backend's pools come from: the device, and the locking of host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "memory/region_pool.hpp"
#include "terrace/offload/host_memory.hpp"

namespace terrace::offload {

/// Regions of device memory, of `region_bytes` unless more is asked for or there is less.
class DeviceRegions final : public RegionSource {
 public:
  DeviceRegions(int device, std::size_t region_bytes) noexcept
      : device_(device), region_bytes_(region_bytes) {}

  /// Each region begins on a multiple of this many bytes.
  static constexpr std::size_t alignment = 256;

  [[nodiscard]] Result<std::span<std::byte>> map(std::size_t bytes) override;
  void unmap(std::span<std::byte> region) noexcept override;

 private:
  int device_;
  std::size_t region_bytes_;
};

/// Locks host memory in pieces that end at multiples of `piece_bytes` in the address space: locking
/// holds the driver up for a bounded time, and where pieces meet is known from an address alone.
class RegisteredMemory final : public MemoryPinner {
 public:
  RegisteredMemory(int device, std::size_t piece_bytes) noexcept
      : device_(device), piece_bytes_(piece_bytes) {}

  [[nodiscard]] Status pin(std::span<std::byte> region) override;
  void unpin(std::span<std::byte> region) noexcept override;

 private:
  int device_;
  std::size_t piece_bytes_;
};

/// The backend's own memory: kernels reach all of it. About other memory nothing is known.
class ReachableMemory {
 public:
  ReachableMemory(const RegionPool& device, const HostMemory& host) noexcept
      : device_(device), host_(host) {}

  [[nodiscard]] bool holds(std::span<const std::byte> range) const {
    return device_.holds(range) || host_.holds(range);
  }

 private:
  const RegionPool& device_;
  const HostMemory& host_;
};

/// Memory that a queue lends to its kernels. It belongs to no user, and is not counted.
class LentMemory {
 public:
  /// Takes a word of locked host memory for each of `pieces`, and scratch words of the device, not
  /// yet zeroed.
  [[nodiscard]] static Result<LentMemory> take(RegionPool& device, HostMemory& host,
                                               std::size_t pieces);
  LentMemory(LentMemory&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        host_(other.host_),
        pieces_(other.pieces_),
        scratch_(other.scratch_),
        moved_(other.moved_) {}
  LentMemory& operator=(LentMemory&&) = delete;
  ~LentMemory();

  [[nodiscard]] std::uint32_t* scratch() const noexcept { return scratch_; }
  [[nodiscard]] std::uint64_t* moved() const noexcept { return moved_; }

 private:
  LentMemory(RegionPool& device, HostMemory& host, std::size_t pieces) noexcept
      : device_(&device), host_(&host), pieces_(pieces) {}

  RegionPool* device_;
  HostMemory* host_;
  std::size_t pieces_;
  std::uint32_t* scratch_ = nullptr;
  std::uint64_t* moved_ = nullptr;
};

/// Returns how many of `bytes` from `address` on lie before the next multiple of `piece_bytes`.
inline std::size_t bytes_to_piece_end(const std::byte* address, std::size_t bytes,
                                      std::size_t piece_bytes) noexcept {
  const std::size_t left =
      piece_bytes - (reinterpret_cast<std::uintptr_t>(address) & (piece_bytes - 1));
  return left < bytes ? left : bytes;
}

}  // namespace terrace::offload
