// Locked memory of the host as a device's driver gives it: the backend's own memory is compared
// with it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "terrace/core/result.hpp"

namespace terrace::bench {

/// Gives itself back; null = no memory.
using DriverMemory = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;

/// Allocates by cudaHostAlloc, for all devices.
///
/// Errors   unsupported: this build has no CUDA; out_of_memory; what the driver reports
[[nodiscard]] Result<DriverMemory> allocate_by_driver(std::size_t bytes);

}  // namespace terrace::bench
