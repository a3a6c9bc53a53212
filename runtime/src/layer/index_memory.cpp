#include "index_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

// Large enough that streaming an index takes few copies, small against a long sequence's index.
constexpr std::size_t slab_bytes = std::size_t{256} << 10;

}  // namespace

std::size_t IndexMemory::slab_chunks(const IndexLayout& layout) noexcept {
  return std::max<std::size_t>(1, slab_bytes / layout.chunk_bytes);
}

Result<IndexMemory::SharedSlab> IndexMemory::allocate(Backend& backend, std::size_t bytes) const {
  TERRACE_ASSIGN(Buffer buffer,
                 backend.allocate({.bytes = bytes, .tier = tier_, .purpose = Purpose::index}));
  return SharedSlab(new Slab(std::move(buffer)));
}

Status IndexMemory::reserve(Backend& backend, const IndexLayout& layout, std::size_t chunk_count) {
  if (!fixed_ && layout.fixed_bytes > 0) {
    TERRACE_ASSIGN(fixed_, allocate(backend, layout.fixed_bytes));
  }
  TERRACE_TRY(chunks_.reserve(backend, chunk_count));
  while (chunk_count_ < chunk_count) {
    const std::size_t count = std::min(slab_chunks(layout), chunk_count - chunk_count_);
    TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(count, layout.chunk_bytes));
    TERRACE_ASSIGN(SharedSlab slab, allocate(backend, bytes));
    TERRACE_TRY(chunks_.reserve(backend, chunk_count_ + count));
    for (std::size_t i = 0; i < count; ++i) {
      chunks_.set(chunk_count_ + i, slab->buffer.data() + i * layout.chunk_bytes);
    }
    chunk_count_ += count;
    slabs_.push_back(std::move(slab));
  }
  return {};
}

void IndexMemory::trim(const IndexLayout& layout, std::size_t chunk_count) noexcept {
  while (!slabs_.empty()) {
    const std::size_t before = chunk_count_ - slabs_.back()->buffer.bytes() / layout.chunk_bytes;
    if (before < chunk_count) return;
    slabs_.pop_back();
    chunk_count_ = before;
  }
}

Status IndexMemory::share_with(IndexMemory& other, Backend& backend) {
  TERRACE_TRY(other.chunks_.reserve(backend, chunk_count_));
  for (std::size_t i = 0; i < chunk_count_; ++i) other.chunks_.set(i, chunks_[i]);
  other.fixed_ = fixed_;
  other.slabs_ = slabs_;
  other.chunk_count_ = chunk_count_;
  has_shared_ = other.has_shared_ = true;
  return {};
}

template <typename Visit>
void IndexMemory::visit_shared(const IndexLayout& layout, TokenRange chunks, Visit visit) const {
  if (!has_shared_) return;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < slabs_.size() && begin < chunks.end; ++i) {
    const std::size_t end = begin + slabs_[i]->buffer.bytes() / layout.chunk_bytes;
    if (end > chunks.begin && slabs_[i]->use_count() > 1 && !visit(i, begin)) return;
    begin = end;
  }
}

bool IndexMemory::shares(const IndexLayout& layout, const IndexPart& part) const noexcept {
  if (!has_shared_) return false;
  bool found = part.with_fixed && fixed_ && fixed_->use_count() > 1;
  visit_shared(layout, part.chunks, [&](std::size_t, std::size_t) {
    found = true;
    return false;
  });
  return found;
}

Status IndexMemory::own(Backend& backend, const IndexLayout& layout, const IndexPart& part) {
  const auto replace = [&](SharedSlab& slab, bool keeps_bytes) -> Status {
    const std::size_t bytes = slab->buffer.bytes();
    TERRACE_ASSIGN(SharedSlab mine, allocate(backend, bytes));
    if (keeps_bytes) std::memcpy(mine->buffer.data(), slab->buffer.data(), bytes);
    old_.push_back(std::exchange(slab, std::move(mine)));
    return {};
  };
  Status owned;
  if (part.with_fixed && fixed_ && fixed_->use_count() > 1) {
    TERRACE_TRY(replace(fixed_, /*keeps_bytes=*/true));
  }
  visit_shared(layout, part.chunks, [&](std::size_t i, std::size_t first) {
    owned = replace(slabs_[i], part.keeps_chunks);
    if (!owned) return false;
    const Buffer& buffer = slabs_[i]->buffer;
    for (std::size_t at = 0; at < buffer.bytes(); at += layout.chunk_bytes) {
      chunks_.set(first + at / layout.chunk_bytes, buffer.data() + at);
    }
    return true;
  });
  return owned;
}

void IndexMemory::forget_old_copies() noexcept {
  chunks_.forget_old_copies();
  old_.clear();
}

void IndexMemory::reset() noexcept {
  fixed_.reset();
  slabs_.clear();
  old_.clear();
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
