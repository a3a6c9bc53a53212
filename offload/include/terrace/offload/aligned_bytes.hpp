// Memory for transfers of files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace terrace::offload {

/// Whole blocks of a file (StorageFile::alignment) that contain no other memory; zero at first.
/// From 2 MiB on, in huge pages where the system gives them: in small pages, the system splits a
/// large transfer into several.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  /// Throws std::bad_alloc.
  explicit AlignedBytes(std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  /// Leaks the memory, because a device that has not answered may still write to it.
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
