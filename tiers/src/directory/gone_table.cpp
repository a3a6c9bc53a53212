#include "gone_table.hpp"

#include <algorithm>

#include "key_hash.hpp"

namespace terrace::tiers {
namespace {

// A slot: 28 bits of the key's hash, 2 bits of uses, 2 bits of the reason; 0 = empty.
constexpr std::uint32_t fingerprint_mask = 0xfffffff0U;
constexpr int uses_shift = 2;
constexpr std::uint32_t two_bits = 3;
constexpr MissReason reasons[] = {MissReason::evicted, MissReason::corrupt, MissReason::no_room};

std::uint32_t slot_of(std::uint32_t fingerprint, const GoneChunk& gone) noexcept {
  const auto* const reason = std::ranges::find(reasons, gone.reason);
  const auto code = static_cast<std::uint32_t>(reason - std::begin(reasons)) + 1;
  return fingerprint | std::min(gone.uses, GoneTable::uses_max) << uses_shift | code;
}

auto find_slot(std::span<std::uint32_t> bucket, std::uint32_t fingerprint) noexcept {
  return std::ranges::find_if(bucket, [&](std::uint32_t slot) {
    return slot != 0 && (slot & fingerprint_mask) == fingerprint;
  });
}

}  // namespace

GoneTable::Place GoneTable::place_of_key(const ChunkKey& key) const noexcept {
  const std::uint64_t hash = hash_of(key, seed_);
  const std::size_t bucket = place_of(hash, slots_.size() / bucket_slots) * bucket_slots;
  // The upper bits chose the bucket.
  return {slots_.subspan(bucket, bucket_slots),
          static_cast<std::uint32_t>(hash) & fingerprint_mask};
}

std::optional<GoneChunk> GoneTable::find(const ChunkKey& key) const noexcept {
  const Place place = place_of_key(key);
  const auto slot = find_slot(place.bucket, place.fingerprint);
  if (slot == place.bucket.end() || (*slot & two_bits) == 0) return std::nullopt;
  return GoneChunk{.reason = reasons[(*slot & two_bits) - 1],
                   .uses = *slot >> uses_shift & two_bits};
}

void GoneTable::remember(const ChunkKey& key, const GoneChunk& gone) noexcept {
  const Place place = place_of_key(key);
  auto slot = find_slot(place.bucket, place.fingerprint);
  if (slot == place.bucket.end()) --slot;
  std::move_backward(place.bucket.begin(), slot, slot + 1);
  place.bucket.front() = slot_of(place.fingerprint, gone);
}

}  // namespace terrace::tiers
