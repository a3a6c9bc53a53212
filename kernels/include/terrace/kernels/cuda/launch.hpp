// How a kernel for CUDA is put on a queue: what it needs beside its arguments. No CUDA type is
// named, so that whoever only passes it on needs no toolkit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::cuda {

/// Words of device memory that a queue lends to its kernels. They are 0 between kernels: whoever
/// changes one sets it back.
inline constexpr std::size_t scratch_words = 8;

struct Launch {
  void* stream = nullptr;            ///< a cudaStream_t
  std::uint32_t* scratch = nullptr;  ///< [scratch_words], device memory
  std::uint64_t* moved = nullptr;    ///< locked host memory: bytes that only the device can count
};

}  // namespace terrace::kernels::cuda
