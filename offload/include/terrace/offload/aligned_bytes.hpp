// Memory for transfers of files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace terrace::offload {

/// Whole blocks of a file (StorageFile::alignment), of which none is shared with other memory; zero
/// at first. From 2 MiB on in huge pages where the system gives them: of small ones, a large
/// transfer becomes several.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  /// Throws std::bad_alloc.
  explicit AlignedBytes(std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  /// Leaves the memory to a device that has not answered, and may still write to it.
  void abandon() noexcept { static_cast<void>(memory_.release()); }

  /// At least the bytes asked for.
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace terrace::offload
