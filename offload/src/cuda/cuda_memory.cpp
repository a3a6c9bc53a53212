#include "cuda_memory.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "device_scope.hpp"
#include "support/check.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::offload {
namespace {

using cuda::check;

constexpr std::size_t scratch_bytes = kernels::cuda::scratch_words * sizeof(std::uint32_t);
constexpr std::size_t region_granularity = std::size_t{2} << 20;  // what a device maps at once

Error no_device_memory(Error error, std::size_t bytes) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  if (error.code != Errc::out_of_memory ||
      !check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory")) {
    return error;
  }
  return make_error(Errc::out_of_memory,
                    "the device has no {} left: {} of {} are free; lower device.memory, or "
                    "end other programs on it (nvidia-smi)",
                    format_size(bytes), format_size(free_bytes), format_size(total_bytes));
}

}  // namespace

Result<std::span<std::byte>> DeviceRegions::map(std::size_t bytes) {
  const DeviceScope device(device_);
  TERRACE_TRY(device.status());
  const std::size_t needed = align_up(bytes, region_granularity);
  void* data = nullptr;
  for (const std::size_t size : {std::max(needed, region_bytes_), needed}) {
    const Status mapped = check(cudaMalloc(&data, size), "allocating device memory");
    if (mapped) return std::span(static_cast<std::byte*>(data), size);
    if (mapped.error().code != Errc::out_of_memory || size == needed) {
      return tl::unexpected(no_device_memory(mapped.error(), needed));
    }
  }
  return fail(Errc::out_of_memory, "the device has no {} left", format_size(needed));
}

void DeviceRegions::unmap(std::span<std::byte> region) noexcept {
  const BesideCaptures beside_captures;
  // Memory of a lost device, or of a runtime that is being unloaded, is gone already.
  static_cast<void>(check(cudaFree(region.data()), "freeing device memory"));
}

Status RegisteredMemory::pin(std::span<std::byte> region) {
  const DeviceScope device(device_);
  TERRACE_TRY(device.status());
  for (std::size_t at = 0; at < region.size();) {
    const std::size_t bytes =
        bytes_to_piece_end(region.data() + at, region.size() - at, piece_bytes_);
    const Status locked = check(cudaHostRegister(region.data() + at, bytes,
                                                 cudaHostRegisterPortable | cudaHostRegisterMapped),
                                "locking host memory");
    if (!locked) {
      unpin(region.first(at));
      if (locked.error().code == Errc::device_lost) return locked;
      Error error = make_error(Errc::out_of_memory,
                               "the system locks no {} more of host memory: lower "
                               "host.memory, or raise the limit (ulimit -l, a container's memory)",
                               format_size(bytes));
      error.native = locked.error().native;
      return tl::unexpected(error);
    }
    at += bytes;
  }
  return {};
}

void RegisteredMemory::unpin(std::span<std::byte> region) noexcept {
  const BesideCaptures beside_captures;
  for (std::size_t at = 0; at < region.size();) {
    static_cast<void>(check(cudaHostUnregister(region.data() + at), "unlocking host memory"));
    at += bytes_to_piece_end(region.data() + at, region.size() - at, piece_bytes_);
  }
}

Result<LentMemory> LentMemory::take(RegionPool& device, HostMemory& host, std::size_t pieces) {
  LentMemory lent(device, host, pieces);
  TERRACE_ASSIGN(std::byte* const scratch, device.allocate(scratch_bytes, alignof(std::uint32_t)));
  lent.scratch_ = reinterpret_cast<std::uint32_t*>(scratch);
  TERRACE_ASSIGN(std::byte* const moved,
                 host.allocate(pieces * sizeof(std::uint64_t), alignof(std::uint64_t)));
  lent.moved_ = reinterpret_cast<std::uint64_t*>(moved);
  return lent;
}

LentMemory::~LentMemory() {
  if (device_ == nullptr) return;
  if (scratch_ != nullptr) device_->release(reinterpret_cast<std::byte*>(scratch_), scratch_bytes);
  if (moved_ != nullptr) {
    host_->release(reinterpret_cast<std::byte*>(moved_), pieces_ * sizeof(std::uint64_t));
  }
}

}  // namespace terrace::offload
