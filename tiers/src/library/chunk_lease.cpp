#include <algorithm>
#include <utility>

#include "terrace/tiers/chunk_library.hpp"

namespace terrace::tiers {

ChunkLease::ChunkLease(std::shared_ptr<ChunkLibrary> library, std::vector<ChunkKey> chunks) noexcept
    : library_(std::move(library)), chunks_(std::move(chunks)) {}

ChunkLease::ChunkLease(ChunkLease&& other) noexcept
    : library_(std::move(other.library_)), chunks_(std::exchange(other.chunks_, {})) {}

ChunkLease& ChunkLease::operator=(ChunkLease&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(chunks_, other.chunks_);
  return *this;
}

ChunkLease::~ChunkLease() {
  if (library_ != nullptr) library_->return_lease(chunks_);
}

bool ChunkLease::covers(const ChunkKey& key) const noexcept {
  return std::ranges::find(chunks_, key) != chunks_.end();
}

void ChunkLease::drop(std::size_t number, const Error& why) const {
  library_->drop(chunks_[number], why);
}

}  // namespace terrace::tiers
