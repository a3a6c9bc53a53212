#include "mapped_region.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

/// Maps `bytes` (a multiple of the alignment) at an aligned address: more is mapped, and the ends
/// that stick out are given back.
std::byte* map_aligned(std::size_t bytes) {
  const std::size_t wide = bytes + MappedRegion::alignment;
  if (wide < bytes) return nullptr;
  void* const raw = mmap(nullptr, wide, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t front = align_up(address, MappedRegion::alignment) - address;
  if (front != 0) munmap(begin, front);
  if (wide != front + bytes) munmap(begin + front + bytes, wide - front - bytes);
  return begin + front;
}

void touch(std::span<std::byte> range, Parallel& parallel) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t part_bytes = MappedRegion::alignment;
  parallel.for_each(divide_up(range.size(), part_bytes), [&](std::size_t part) {
    const std::size_t end = std::min(range.size(), (part + 1) * part_bytes);
    for (std::size_t at = part * part_bytes; at < end; at += page_bytes) range[at] = std::byte{0};
  });
}

}  // namespace

Result<MappedRegion> MappedRegion::map(std::size_t bytes, const HostMemoryOptions& options,
                                       const Topology* topology) {
  const std::size_t rounded = align_up(bytes, alignment);
  std::byte* const base = rounded < bytes ? nullptr : map_aligned(rounded);
  if (base == nullptr) {
    return fail(Errc::out_of_memory, "the system maps no {} more of host memory",
                format_size(bytes));
  }
  MappedRegion region({base, rounded});
  if (options.huge_pages != HugePages::off) {
    region.huge_pages_ = madvise(base, rounded, MADV_HUGEPAGE) == 0;
    if (!region.huge_pages_ && options.huge_pages == HugePages::on) {
      Error error = make_error(Errc::unsupported,
                               "the system refuses huge pages; set huge_pages to auto or off");
      error.native = errno;
      return tl::unexpected(error);
    }
  }
  if (topology != nullptr && options.numa_node) {
    region.placed_ = topology->bind_memory(region.range_, *options.numa_node).has_value();
  }
  Serial serial;
  touch(region.range_, options.parallel != nullptr ? *options.parallel : serial);
  if (options.lock) region.locked_ = mlock(base, rounded) == 0;
  return region;
}

MappedRegion::~MappedRegion() {
  if (!range_.empty()) munmap(range_.data(), range_.size());
}

}  // namespace terrace::offload
