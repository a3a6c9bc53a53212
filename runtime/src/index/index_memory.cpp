#include "index_memory.hpp"

#include <algorithm>
#include <cstring>

#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

// Large enough that streaming an index takes few copies, small against a long sequence's index.
constexpr std::size_t slab_bytes = std::size_t{256} << 10;

}  // namespace

Status IndexMemory::reserve(Backend& backend, const IndexLayout& layout, std::size_t chunk_count) {
  const AllocationRequest fixed{
      .bytes = layout.fixed_bytes, .tier = tier_, .purpose = Purpose::index};
  if (!fixed_ && layout.fixed_bytes > 0) {
    TERRACE_ASSIGN(fixed_, backend.allocate(fixed));
  }
  TERRACE_TRY(chunks_.reserve(backend, chunk_count));
  const std::size_t slab_chunks = std::max<std::size_t>(1, slab_bytes / layout.chunk_bytes);
  while (chunk_count_ < chunk_count) {
    const std::size_t count = std::min(slab_chunks, chunk_count - chunk_count_);
    TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(count, layout.chunk_bytes));
    TERRACE_ASSIGN(Buffer slab,
                   backend.allocate({.bytes = bytes, .tier = tier_, .purpose = Purpose::index}));
    TERRACE_TRY(chunks_.reserve(backend, chunk_count_ + count));
    for (std::size_t i = 0; i < count; ++i) {
      chunks_.set(chunk_count_ + i, slab.data() + i * layout.chunk_bytes);
    }
    chunk_count_ += count;
    slabs_.push_back(std::move(slab));
  }
  return {};
}

void IndexMemory::trim(const IndexLayout& layout, std::size_t chunk_count) noexcept {
  while (!slabs_.empty()) {
    const std::size_t before = chunk_count_ - slabs_.back().bytes() / layout.chunk_bytes;
    if (before < chunk_count) return;
    slabs_.pop_back();
    chunk_count_ = before;
  }
}

Status IndexMemory::copy_from(const IndexMemory& other, Backend& backend,
                              const IndexLayout& layout) {
  TERRACE_TRY(reserve(backend, layout, other.chunk_count_));
  if (layout.fixed_bytes > 0) std::memcpy(fixed(), other.fixed(), layout.fixed_bytes);
  for (std::size_t i = 0; i < other.chunk_count_; ++i) {
    std::memcpy(chunk(i), other.chunk(i), layout.chunk_bytes);
  }
  return {};
}

void IndexMemory::reset() noexcept {
  fixed_.reset();
  slabs_.clear();
  chunks_.reset();
  chunk_count_ = 0;
}

std::size_t append_chunk_copies(const IndexLayout& layout, const IndexMemory& source,
                                const IndexMemory& target, TokenRange chunks,
                                std::vector<CopyExtent>& extents) {
  for (std::size_t i = chunks.begin; i < chunks.end; ++i) {
    std::byte* const to = target.chunk(i);
    const std::byte* const from = source.chunk(i);
    const bool continues = i > chunks.begin && to == extents.back().target + extents.back().bytes &&
                           from == extents.back().source + extents.back().bytes;
    if (continues) {
      extents.back().bytes += layout.chunk_bytes;
    } else {
      extents.push_back({to, from, layout.chunk_bytes});
    }
  }
  return chunks.size() * layout.chunk_bytes;
}

}  // namespace terrace
