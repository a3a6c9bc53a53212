#include "chunk_table.hpp"

#include "key_hash.hpp"

namespace terrace::tiers {

RecordNumber& ChunkTable::bucket_of(const ChunkKey& key) const noexcept {
  return buckets_[place_of(hash_of(key, seed_), buckets_.size())];
}

RecordNumber ChunkTable::find(const ChunkKey& key) const noexcept {
  RecordNumber chunk = bucket_of(key);
  while (chunk != no_record && pool_[chunk].key != key) chunk = pool_[chunk].next;
  return chunk;
}

RecordNumber ChunkTable::insert(const ChunkKey& key) noexcept {
  const RecordNumber chunk = pool_.allocate();
  if (chunk == no_record) return chunk;
  RecordNumber& bucket = bucket_of(key);
  pool_[chunk] = {.key = key, .next = bucket};
  bucket = chunk;
  return chunk;
}

void ChunkTable::erase(RecordNumber chunk) noexcept {
  RecordNumber* link = &bucket_of(pool_[chunk].key);
  while (*link != chunk) link = &pool_[*link].next;
  *link = pool_[chunk].next;
  pool_[chunk].state = ChunkRecord::State::free;
  pool_.release(chunk);
}

bool ChunkTable::is_whole() const noexcept {
  std::uint64_t seen = 0;
  for (RecordNumber& bucket : buckets_) {
    for (RecordNumber chunk = bucket; chunk != no_record; chunk = pool_[chunk].next) {
      if (chunk >= pool_.state().fresh || ++seen > pool_.state().used) return false;
      if (pool_[chunk].state == ChunkRecord::State::free) return false;
      if (&bucket_of(pool_[chunk].key) != &bucket) return false;
    }
  }
  return seen == pool_.state().used;
}

}  // namespace terrace::tiers
