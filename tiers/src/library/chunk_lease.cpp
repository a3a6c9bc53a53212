#include "terrace/tiers/chunk_lease.hpp"

#include <algorithm>

namespace terrace::tiers {

std::span<const ChunkKey> ChunkLease::chunks() const noexcept {
  return held_ == nullptr ? std::span<const ChunkKey>{} : held_->chunks();
}

bool ChunkLease::covers(const ChunkKey& key) const noexcept {
  return std::ranges::find(chunks(), key) != chunks().end();
}

void ChunkLease::drop(std::size_t number, const Error& why) const {
  held_->drop(chunks()[number], why);
}

}  // namespace terrace::tiers
