// How a kernel for CUDA is put on a queue: what it needs beside its arguments. No CUDA type is
// named, so that whoever only passes it on needs no toolkit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::cuda {

/// Calls of a batch whose arguments, of `bytes` each, one launch takes.
///
/// They are passed by value, of which a launch may have 32,764 bytes. It copies all the room for
/// them, filled or not, so that more room would make small batches slower (decision 0072).
constexpr std::size_t calls_per_launch(std::size_t bytes) noexcept {
  constexpr std::size_t room = std::size_t{16} << 10;
  constexpr std::size_t most = 256;
  return room / bytes < most ? room / bytes : most;
}

/// Words of device memory that a queue lends to its kernels, two for each call of a launch. They
/// are 0 between kernels: whoever changes one sets it back.
inline constexpr std::size_t scratch_words = 2 * calls_per_launch(1);

struct Launch {
  void* stream = nullptr;            ///< a cudaStream_t
  std::uint32_t* scratch = nullptr;  ///< [scratch_words], device memory
  std::uint64_t* moved = nullptr;    ///< locked host memory; kernels add bytes that they count
};

}  // namespace terrace::kernels::cuda
