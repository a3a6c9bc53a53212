#include "memory.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "capture.hpp"
#include "device_state.hpp"

namespace cuda_on_host {
namespace {

/// Ranges by their first byte.
class Ranges {
 public:
  bool add(void* data, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    if (overlaps(data, bytes)) return false;
    ranges_[static_cast<char*>(data)] = bytes;
    largest_ = std::max(largest_, bytes);
    return true;
  }
  bool remove(void* data) {
    const std::scoped_lock lock(mutex_);
    return ranges_.erase(static_cast<char*>(data)) == 1;
  }
  bool crossed_by(const void* data, std::size_t bytes) const {
    const std::scoped_lock lock(mutex_);
    const auto* const begin = static_cast<const char*>(data);
    auto after = ranges_.upper_bound(const_cast<char*>(begin));
    const bool inside =
        after != ranges_.begin() && begin < std::prev(after)->first + std::prev(after)->second;
    if (inside) return begin + bytes > std::prev(after)->first + std::prev(after)->second;
    return after != ranges_.end() && begin + bytes > after->first;
  }
  std::size_t bytes() const {
    const std::scoped_lock lock(mutex_);
    return std::accumulate(ranges_.begin(), ranges_.end(), std::size_t{0},
                           [](std::size_t sum, const auto& range) { return sum + range.second; });
  }
  std::size_t largest() const {
    const std::scoped_lock lock(mutex_);
    return largest_;
  }
  void forget_largest() {
    const std::scoped_lock lock(mutex_);
    largest_ = 0;
  }

 private:
  bool overlaps(void* data, std::size_t bytes) const {
    char* const begin = static_cast<char*>(data);
    const auto after = ranges_.lower_bound(begin);
    if (after != ranges_.end() && after->first < begin + bytes) return true;
    return after != ranges_.begin() && std::prev(after)->first + std::prev(after)->second > begin;
  }

  mutable std::mutex mutex_;
  std::map<char*, std::size_t> ranges_;
  std::size_t largest_ = 0;
};

Ranges& device_ranges() {
  static Ranges* const ranges = new Ranges;
  return *ranges;
}
Ranges& locked_ranges() {
  static Ranges* const ranges = new Ranges;
  return *ranges;
}

constexpr std::size_t alignment = 512;

void* allocate(std::size_t bytes) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

}  // namespace

std::uint64_t registered_bytes() { return locked_ranges().bytes(); }
std::uint64_t largest_registration() { return locked_ranges().largest(); }
void forget_largest_registration() { locked_ranges().forget_largest(); }

bool crosses_registrations(const void* data, std::size_t bytes) {
  return device_ranges().crossed_by(data, bytes) || locked_ranges().crossed_by(data, bytes);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  CUDA_ON_HOST_ENTER("cudaMalloc");
  if (device_ranges().bytes() + bytes > device_state().traits.memory_bytes) {
    return report(cudaErrorMemoryAllocation);
  }
  *data = allocate(bytes);
  if (*data == nullptr) return report(cudaErrorMemoryAllocation);
  device_ranges().add(*data, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_captures("cudaFree"); error != cudaSuccess) {
    return report(error);
  }
  if (!device_ranges().remove(data)) return report(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  CUDA_ON_HOST_ENTER("cudaMemGetInfo");
  *total_bytes = device_state().traits.memory_bytes;
  *free_bytes = *total_bytes - std::min(*total_bytes, device_ranges().bytes());
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned /*flags*/) {
  CUDA_ON_HOST_ENTER("cudaHostRegister");
  if (locked_ranges().bytes() + bytes > device_state().traits.lockable_bytes) {
    return report(cudaErrorMemoryAllocation);
  }
  return report(locked_ranges().add(data, bytes) ? cudaSuccess
                                                 : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* data) {
  if (const cudaError_t error = check_captures("cudaHostUnregister"); error != cudaSuccess) {
    return report(error);
  }
  return report(locked_ranges().remove(data) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  CUDA_ON_HOST_ENTER("cudaHostAlloc");
  *data = allocate(bytes);
  if (*data == nullptr) return report(cudaErrorMemoryAllocation);
  locked_ranges().add(*data, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t error = check_captures("cudaFreeHost"); error != cudaSuccess) {
    return report(error);
  }
  if (!locked_ranges().remove(data)) return report(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  CUDA_ON_HOST_ENTER("cudaMemset");
  std::memset(data, value, bytes);
  return cudaSuccess;
}
