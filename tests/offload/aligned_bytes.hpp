// Memory that transfers of files take.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "terrace/offload/storage_file.hpp"

namespace terrace::offload {

class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(StorageFile::alignment, bytes))),
        bytes_(bytes) {
    std::fill_n(memory_.get(), bytes, std::byte{});
  }

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

}  // namespace terrace::offload
