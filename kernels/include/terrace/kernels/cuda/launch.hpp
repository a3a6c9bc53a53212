// The launch of a CUDA kernel: everything it needs besides its arguments. No CUDA type is named, so
// that code that only passes a launch on needs no toolkit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::cuda {

/// Calls of a batch whose arguments, of `bytes` each, one launch takes.
///
/// Arguments are passed by value; a launch may have 32,764 bytes of them. A launch copies all the
/// room for arguments, filled or not, so that more room would make small batches slower (decision
/// 0072).
constexpr std::size_t calls_per_launch(std::size_t bytes) noexcept {
  constexpr std::size_t room = std::size_t{16} << 10;
  constexpr std::size_t most = 256;
  return room / bytes < most ? room / bytes : most;
}

/// Words of device memory that a queue lends to its kernels, some for each call of a launch. The
/// words are 0 between kernels: a kernel that changes a word sets it back.
inline constexpr std::size_t scratch_words = 64 * calls_per_launch(1);

struct Launch {
  void* stream = nullptr;            ///< a cudaStream_t
  std::uint32_t* scratch = nullptr;  ///< [scratch_words], device memory
  std::uint64_t* moved = nullptr;    ///< locked host memory; kernels add bytes that they count
};

}  // namespace terrace::kernels::cuda
