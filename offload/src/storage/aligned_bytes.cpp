#include "terrace/offload/aligned_bytes.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "memory/mapped_region.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/storage_file.hpp"

namespace terrace::offload {
AlignedBytes::AlignedBytes(std::size_t bytes) : bytes_(align_up(bytes, StorageFile::alignment)) {
  const bool is_large = bytes_ >= MappedRegion::alignment;
  const std::size_t alignment = is_large ? MappedRegion::alignment : StorageFile::alignment;
  const std::size_t taken = align_up(bytes_, alignment);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, taken)));
  if (memory_ == nullptr) throw std::bad_alloc();
  if (is_large) static_cast<void>(::madvise(memory_.get(), taken, MADV_HUGEPAGE));
  std::fill_n(memory_.get(), bytes_, std::byte{});
}

void AlignedBytes::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

}  // namespace terrace::offload
