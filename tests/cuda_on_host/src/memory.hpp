// Device memory and locked host memory of the stand-in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_on_host {

std::uint64_t registered_bytes();
std::uint64_t largest_registration();
void forget_largest_registration();

/// Whether a range begins in one registration (or allocation) and ends outside of it: a copy of it
/// is an error of the driver's.
bool crosses_registrations(const void* data, std::size_t bytes);

}  // namespace cuda_on_host
